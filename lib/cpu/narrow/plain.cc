// int8 in plain C++, for every machine.
#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

template <int kWidth>
void Multiply(const NarrowTile& tile) {
  const int64_t columns = int64_t{tile.vectors} * kWidth;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const uint8_t* a = static_cast<const uint8_t*>(tile.a) + r * tile.a_row;
    int32_t* sums = static_cast<int32_t*>(tile.sums) + r * columns;
    for (int64_t j = 0; j < columns; ++j) sums[j] = tile.start == nullptr ? 0 : tile.start[j];
    const int8_t* b = static_cast<const int8_t*>(tile.panel);
    for (int64_t i = 0; i < tile.groups; ++i, a += 4, b += 4 * columns) {
      const int32_t x[4] = {a[0], a[1], a[2], a[3]};
      for (int64_t j = 0; j < columns; ++j) {
        const int8_t* w = b + 4 * j;
        sums[j] += (x[0] * w[0] + x[1] * w[1]) + (x[2] * w[2] + x[3] * w[3]);
      }
    }
  }
}

template <int kWidth>
constexpr NarrowKernel Plain() {
  return {"plain", Narrow::kInt8, kWidth, 1, nullptr, nullptr, Multiply<kWidth>, nullptr, nullptr};
}

}  // namespace

const NarrowKernel kPlainInt8[] = {Plain<1>(), Plain<2>(), Plain<4>(), Plain<8>(), Plain<16>()};

}  // namespace haste
