// NEON with the dot products of ARMv8.2 (sdot) and ARMv8.6 (bfdot).
#if defined(__aarch64__)
#include <arm_neon.h>

#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+bf16")

struct Int8 {
  using V = int32x4_t;
  static V Zero() { return vdupq_n_s32(0); }
  static V Start(const NarrowTile& tile, int v) {
    return tile.start == nullptr ? Zero() : vld1q_s32(tile.start + 4 * v);
  }
  static V Dot(V sum, uint32_t group, const char* b) {
    // The byte stands for its value - 128.
    const int8x16_t x = vreinterpretq_s8_u32(vdupq_n_u32(group ^ 0x80808080u));
    return vdotq_s32(sum, vld1q_s8(reinterpret_cast<const int8_t*>(b)), x);
  }
  static void Store(V v, void* to) { vst1q_s32(static_cast<int32_t*>(to), v); }
};

struct Bfloat16 {
  using V = float32x4_t;
  static V Zero() { return vdupq_n_f32(0); }
  static V Start(const NarrowTile&, int) { return Zero(); }
  static V Dot(V sum, uint32_t group, const char* b) {
    const bfloat16x8_t x = vreinterpretq_bf16_u32(vdupq_n_u32(group));
    return vbfdotq_f32(sum, vld1q_bf16(reinterpret_cast<const bfloat16_t*>(b)), x);
  }
  static void Store(V v, void* to) { vst1q_f32(static_cast<float*>(to), v); }
};

template <class Type, int kRows>
inline void Rows(const NarrowTile& tile, int64_t row, int v) {
  const char* a = static_cast<const char*>(tile.a) + row * tile.a_row;
  const char* b = static_cast<const char*>(tile.panel) + 16 * v;
  const int64_t b_row = 16 * static_cast<int64_t>(tile.vectors);
  typename Type::V sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = Type::Start(tile, v);
  for (int64_t i = 0; i < tile.groups; ++i, b += b_row) {
    for (int r = 0; r < kRows; ++r) {
      uint32_t group;
      __builtin_memcpy(&group, a + r * tile.a_row + 4 * i, sizeof group);
      sum[r] = Type::Dot(sum[r], group, b);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Type::Store(sum[r], static_cast<char*>(tile.sums) + (row + r) * b_row + 16 * v);
  }
}

template <class Type>
void Multiply(const NarrowTile& tile) {
  for (int v = 0; v < tile.vectors; ++v) {
    int64_t row = 0;
    for (; row + 4 <= tile.rows; row += 4) Rows<Type, 4>(tile, row, v);
    for (; row < tile.rows; ++row) Rows<Type, 1>(tile, row, v);
  }
}

#pragma GCC pop_options

}  // namespace

const NarrowKernel kNeonInt8 = {"NEON",  Narrow::kInt8,  4,       1,      nullptr,
                                nullptr, Multiply<Int8>, nullptr, nullptr};
const NarrowKernel kNeonBfloat16 = {"NEON",  Narrow::kBfloat16,  4,       1,      nullptr,
                                    nullptr, Multiply<Bfloat16>, nullptr, nullptr};

}  // namespace haste
#endif
