#include "lib/cpu/narrow/narrow.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>

#include "lib/cpu/simd/targets.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace haste {
namespace {

#if defined(__x86_64__)
const NarrowKernel* MachineKernel(Narrow type, int64_t width) {
  const bool int8 = type == Narrow::kInt8;
  const SimdTarget best = BestTarget();
  if (width == 16) {
    if (best >= SimdTarget::kAmx) return int8 ? &kAmxInt8 : &kAmxBfloat16;
    if (best >= SimdTarget::kAvx3Dot && int8) return &kAvx512Int8;
    if (best >= SimdTarget::kAvx2 && int8) return &kAvx2Int8Wide;
    if (best >= SimdTarget::kAvx3Dot && HasFastAvx512Bf16()) return &kAvx512Bfloat16;
    if (best >= SimdTarget::kAvx3) return &kAvx512FmaBfloat16;
  }
  if (width != 8 || !int8 || best < SimdTarget::kAvx2) return nullptr;
  return HasAvxVnni() ? &kAvxVnniInt8 : &kAvx2Int8;
}
#elif defined(__aarch64__)
const NarrowKernel* MachineKernel(Narrow type, int64_t width) {
  if (width != 4 || AllowedTarget() == SimdTarget::kBaseline) return nullptr;
#if defined(__linux__)
  constexpr unsigned long kDot = 1ul << 20, kBf16 = 1ul << 14;  // HWCAP_ASIMDDP, HWCAP2_BF16
  if (type == Narrow::kInt8) return getauxval(AT_HWCAP) & kDot ? &kNeonInt8 : nullptr;
  return getauxval(AT_HWCAP2) & kBf16 ? &kNeonBfloat16 : nullptr;
#else
  return nullptr;
#endif
}
#else
const NarrowKernel* MachineKernel(Narrow, int64_t) { return nullptr; }
#endif

struct Free {
  void operator()(void* memory) const { free(memory); }
};

}  // namespace

const NarrowKernel* FindNarrow(Narrow type, int64_t width) {
  const NarrowKernel* kernel = MachineKernel(type, width);
  if (kernel != nullptr || type != Narrow::kInt8) return kernel;
  kernel = kPlainInt8;
  while (kernel->width != width) ++kernel;
  return kernel;
}

void NarrowStart(const NarrowKernel& kernel, const void* panel, int64_t groups, int vectors,
                 int32_t* start) {
  constexpr int64_t kGroups = 256;
  alignas(64) uint8_t zeros[4 * kGroups];
  memset(zeros, 128, sizeof zeros);
  const int64_t sums = int64_t{vectors} * kernel.width;
  alignas(64) int32_t both[2][kNarrowRows * kMaxVectors * 16];
  const int32_t* before = nullptr;
  int now = 0;
  const char* from = static_cast<const char*>(panel);
  for (int64_t done = 0; done < groups; done += kGroups) {
    const int64_t some = std::min(kGroups, groups - done);
    kernel.multiply({zeros, 0, 1, some, from, vectors, before, both[now]});
    from += some * sums * 4;
    before = both[now];
    now ^= 1;
  }
  for (int64_t i = 0; i < sums; ++i) start[i] = before == nullptr ? 0 : -before[i];
}

void* NarrowScratch(size_t bytes) {
  static thread_local std::unique_ptr<void, Free> memory;
  static thread_local size_t size = 0;
  if (bytes > size) {
    const size_t wanted = (bytes + 4095) / 4096 * 4096;
    size = 0;
    memory.reset(aligned_alloc(64, wanted));
    if (memory == nullptr) throw std::bad_alloc();
    size = wanted;
  }
  return memory.get();
}

}  // namespace haste
