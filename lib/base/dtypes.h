// Storage types. Arithmetic runs in Compute<T>: float, or double for double.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// IEEE binary16 and bfloat16 as they are stored. Engines convert them.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
// float32 whose products may use TensorFloat-32.
struct TensorFloat {
  float value;
};
// float32 that is multiplied as kTerms float16 terms with a scale. The operand of R has a bound
// (HasBoundedStates), or its scales are passed with it. One term has the precision of
// TensorFloat-32.
template <int kTerms>
struct Scaled {
  float value;
};

template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

inline size_t DtypeSize(int32_t dtype) {
  switch (dtype) {
    case HASTE_FLOAT64: return 8;
    case HASTE_FLOAT32: return 4;
    default: return 2;
  }
}

// Calls run with a number of a dtype's storage type. The dtype was checked (lib/api/validate.h).
template <class Run>
auto WithDtype(int32_t dtype, const Run& run) {
  switch (dtype) {
    case HASTE_FLOAT64: return run(double());
    case HASTE_FLOAT32: return run(float());
    case HASTE_FLOAT16: return run(Half());
    default: return run(Bfloat16());
  }
}

// Names of the dtypes and of the cells in symbols such as CpuEngine_Lstm_f32.
#define HASTE_DTYPES(X)        \
  X(f32, float, HASTE_FLOAT32) \
  X(f64, double, HASTE_FLOAT64) X(f16, Half, HASTE_FLOAT16) X(bf16, Bfloat16, HASTE_BFLOAT16)

}  // namespace haste
