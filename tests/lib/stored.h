// Tensors of a dtype in memory, for tests that compute in double.
#ifndef HASTE_TESTS_LIB_STORED_H_
#define HASTE_TESTS_LIB_STORED_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "haste/c_api.h"
#include "lib/base/dtypes.h"
#include "tests/lib/problem.h"

namespace haste_test {

// Half-precision floats by their bits: not every compiler has a type for them.
inline uint16_t HalfBits(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) << 15);
  const double size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (size >= 65520) return sign | 0x7C00;
  int exponent = -13;  // for fractions in [0.5, 1); also that of all smaller numbers
  if (size >= 0x1p-14) std::frexp(size, &exponent);
  const auto digits = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 13) << 10) + digits));
}

inline double HalfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  double size = exponent ? std::ldexp(1024 + digits, exponent - 25) : std::ldexp(digits, -24);
  if (exponent == 31) size = digits ? NAN : INFINITY;
  return bits >> 15 ? -size : size;
}

// Values as a dtype stores them in memory.
class Stored {
 public:
  Stored(int32_t dtype, const Tensor& values)
      : dtype_(dtype), bytes_(values.size() * haste::DtypeSize(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) {
      void* to = bytes_.data() + i * haste::DtypeSize(dtype);
      const auto single = static_cast<float>(values[i]);
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
      const uint16_t half = HalfBits(values[i]);
      if (dtype == HASTE_FLOAT64) memcpy(to, &values[i], sizeof values[i]);
      if (dtype == HASTE_FLOAT32) memcpy(to, &single, sizeof single);
      if (dtype == HASTE_FLOAT16) memcpy(to, &half, sizeof half);
      if (dtype == HASTE_BFLOAT16) memcpy(to, &bits, 2);
    }
  }
  Stored(int32_t dtype, int64_t size) : Stored(dtype, Tensor(size, 7)) {}

  void* data() { return bytes_.data(); }
  bool operator==(const Stored& other) const { return bytes_ == other.bytes_; }
  Tensor Values() const {
    Tensor values(bytes_.size() / haste::DtypeSize(dtype_));
    for (size_t i = 0; i < values.size(); ++i) {
      const void* from = bytes_.data() + i * haste::DtypeSize(dtype_);
      float single = 0;
      uint16_t half = 0;
      uint32_t bits = 0;
      if (dtype_ == HASTE_FLOAT64) memcpy(&values[i], from, sizeof values[i]);
      if (dtype_ == HASTE_FLOAT32) memcpy(&single, from, sizeof single);
      if (dtype_ == HASTE_FLOAT16) memcpy(&half, from, sizeof half);
      if (dtype_ == HASTE_BFLOAT16) {
        memcpy(&bits, from, 2);
        bits <<= 16;
        memcpy(&single, &bits, sizeof single);
      }
      if (dtype_ == HASTE_FLOAT16) values[i] = HalfValue(half);
      if (dtype_ == HASTE_FLOAT32 || dtype_ == HASTE_BFLOAT16) values[i] = single;
    }
    return values;
  }

 private:
  int32_t dtype_;
  std::vector<char> bytes_;
};

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_STORED_H_
