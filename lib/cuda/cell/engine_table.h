// The end of an engine's translation unit: its tables, such as BlockEngine_Lstm_f16, for the
// build's HASTE_CELL (Lstm) in each dtype of the build's HASTE_UNIT, one of those below. Dtypes
// share a unit because parsing the headers takes longer than compiling many of the kernels.
#pragma once

#include "lib/base/dtypes.h"
#include "lib/engine/engine.h"

// X(name in symbols, storage type) for each.
#define HASTE_UNIT_16(X) X(f16, Half) X(bf16, Bfloat16)
#define HASTE_UNIT_32(X) X(f32, float)
#define HASTE_UNIT_32_TF32(X) X(f32, float) X(tf32, TensorFloat)
#define HASTE_UNIT_32_64(X) X(f32, float) X(f64, double)
#define HASTE_UNIT_ALL(X) HASTE_UNIT_16(X) HASTE_UNIT_32_64(X)

// The last argument: a class with static WorkspaceBytes, Forward and Backward.
#define HASTE_DEFINE_ENGINE(KIND, CELL, NAME, ...) \
  HASTE_DEFINE_EXPANDED_ENGINE(                    \
      KIND, CELL, NAME,                            \
      {__VA_ARGS__::WorkspaceBytes, __VA_ARGS__::Forward, __VA_ARGS__::Backward})
// The same, with OverlappedForward and OverlappedBackward too.
#define HASTE_DEFINE_OVERLAPPED_ENGINE(KIND, CELL, NAME, ...)                                      \
  HASTE_DEFINE_EXPANDED_ENGINE(                                                                    \
      KIND, CELL, NAME,                                                                            \
      {__VA_ARGS__::WorkspaceBytes, __VA_ARGS__::Forward, __VA_ARGS__::Backward, nullptr, nullptr, \
       __VA_ARGS__::OverlappedForward, __VA_ARGS__::OverlappedBackward})
#define HASTE_DEFINE_EXPANDED_ENGINE(KIND, CELL, NAME, ...) \
  extern const Engine KIND##_##CELL##_##NAME;               \
  const Engine KIND##_##CELL##_##NAME = __VA_ARGS__;
