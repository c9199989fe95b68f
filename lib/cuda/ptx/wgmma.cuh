// wgmma (sm_90a): products that four warps compute together, from operands in shared memory in
// tiles of 8 rows × 16 bytes ("core matrices").
#pragma once

#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/cuda/ptx/assembly.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"

namespace haste {

// c[64 × kRows] += a[64 × 16] · b[kRows × 16]ᵀ; a, b: descriptors. A thread has of each tile of 8
// rows what it would have of mma.sync's. adds: else c is overwritten.
template <class Operand, int kRows>
HASTE_DEVICE void WarpgroupMma(float (&c)[kRows / 2], uint64_t a, uint64_t b, bool adds = true) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kHalf = std::is_same_v<Operand, Half>;
#define HASTE_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define HASTE_16(i) HASTE_4(i), HASTE_4(i + 4), HASTE_4(i + 8), HASTE_4(i + 12)
#define HASTE_64(i) HASTE_16(i), HASTE_16(i + 16), HASTE_16(i + 32), HASTE_16(i + 48)
#define HASTE_SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HASTE_SUMS_16 \
  HASTE_SUMS_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HASTE_SUMS_32 \
  HASTE_SUMS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HASTE_SUMS_64                                                                \
  HASTE_SUMS_32                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HASTE_WGMMA_OF(types, shape, registers, operands, adding, ...)                       \
  asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, " adding                          \
               ", 0;\n\twgmma.mma_async.sync.aligned." shape "k16.f32." types " {" registers \
               "}, " operands ", adds, 1, 1, 0, 0;\n\t}"                                     \
               : __VA_ARGS__                                                                 \
               : "l"(a), "l"(b), "r"(static_cast<int>(adds)))
#define HASTE_WGMMA(...)                      \
  if constexpr (kHalf) {                      \
    HASTE_WGMMA_OF("f16.f16", __VA_ARGS__);   \
  } else {                                    \
    HASTE_WGMMA_OF("bf16.bf16", __VA_ARGS__); \
  }
  if constexpr (kRows == 32) {
    HASTE_WGMMA("m64n32", HASTE_SUMS_16, "%16, %17", "%18", HASTE_16(0));
  } else if constexpr (kRows == 64) {
    HASTE_WGMMA("m64n64", HASTE_SUMS_32, "%32, %33", "%34", HASTE_16(0), HASTE_16(16));
  } else if constexpr (kRows == 128) {
    HASTE_WGMMA("m64n128", HASTE_SUMS_64, "%64, %65", "%66", HASTE_64(0));
  } else {
    static_assert(kRows == 16, "no such product here");
    HASTE_WGMMA("m64n16", HASTE_SUMS_8, "%8, %9", "%10", HASTE_4(0), HASTE_4(4));
  }
#undef HASTE_WGMMA_OF
#undef HASTE_WGMMA
#endif
}

// The same with a warp's 16 × 16 of `a` in its registers, as mma.sync has them.
template <class Operand, int kRows>
HASTE_DEVICE void WarpgroupMmaKept(float (&c)[kRows / 2], const uint32_t (&a)[4], uint64_t b,
                                   bool adds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HASTE_WGMMA_KEPT_OF(types, shape, registers, operands, adding, ...)                  \
  asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, " adding                          \
               ", 0;\n\twgmma.mma_async.sync.aligned." shape "k16.f32." types " {" registers \
               "}, " operands ", adds, 1, 1, 0;\n\t}"                                        \
               : __VA_ARGS__                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)))
#define HASTE_WGMMA_KEPT(...)                      \
  if constexpr (std::is_same_v<Operand, Half>) {   \
    HASTE_WGMMA_KEPT_OF("f16.f16", __VA_ARGS__);   \
  } else {                                         \
    HASTE_WGMMA_KEPT_OF("bf16.bf16", __VA_ARGS__); \
  }
  if constexpr (kRows == 32) {
    HASTE_WGMMA_KEPT("m64n32", HASTE_SUMS_16, "{%16, %17, %18, %19}, %20", "%21", HASTE_16(0));
  } else {
    static_assert(kRows == 64, "no such product here");
    HASTE_WGMMA_KEPT("m64n64", HASTE_SUMS_32, "{%32, %33, %34, %35}, %36", "%37", HASTE_16(0),
                     HASTE_16(16));
  }
#undef HASTE_WGMMA_KEPT_OF
#undef HASTE_WGMMA_KEPT
#endif
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#undef HASTE_SUMS_64
#undef HASTE_SUMS_32
#undef HASTE_SUMS_16
#undef HASTE_SUMS_8
#undef HASTE_64
#undef HASTE_16
#undef HASTE_4
#endif

// Where wgmma finds core matrices of 128 bytes, so many bytes apart along the depth and along rows.
template <int kAlongDepth, int kAlongRows>
HASTE_DEVICE uint64_t CoreMatricesAt(uint32_t shared) {
  return (shared & 0x3FFFF) >> 4 | uint64_t{kAlongDepth >> 4} << 16 |
         uint64_t{kAlongRows >> 4} << 32;
}
// Core matrices of a chunk: those along a chunk's depth follow one another.
template <int kDepth>
HASTE_DEVICE uint64_t CoreMatrices(const void* shared) {
  return CoreMatricesAt<128, kDepth * 16>(SharedAddress(shared));
}

// Call before the first product of a group: makes threads' writes to accumulators visible.
HASTE_DEVICE void BeginWarpgroupMma() { HASTE_ASM_90A("wgmma.fence.sync.aligned;" :: : "memory"); }
HASTE_DEVICE void CommitWarpgroupMma() {
  HASTE_ASM_90A("wgmma.commit_group.sync.aligned;" :: : "memory");
}
// Waits until all but the last kPending groups have been multiplied.
template <int kPending>
HASTE_DEVICE void WaitWarpgroupMma() {
  HASTE_ASM_90A("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace haste
