// The end of an engine's translation unit: its tables, such as BlockEngine_Lstm_f16, for the
// build's HASTE_CELL (Lstm) in each dtype of the build's HASTE_UNIT, one of those below. Dtypes
// share a unit because parsing the headers takes longer than compiling many of the kernels.
#pragma once

#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/cells/cell.h"
#include "lib/cuda/ops/ops.h"
#include "lib/engine/engine.h"

namespace haste {

// A walk of a cell with kMixesHidden. Its kernels store and read h[t-1] without dropout, in one
// tensor. Under recurrent dropout that is the last one of the reserve, and saved[0] is made of it
// after the walk.
template <class Cell, class Walk>
struct MixesHidden : Walk {
  static int32_t Forward(const RnnCall& call, const HasteRnnForwardArgs& args,
                         HasteStatus* status) {
    HASTE_TRY(Walk::Forward(call, OfKernels(call, args), status));
    return Drop(call, args, status);
  }
  static int32_t Backward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                          HasteStatus* status) {
    return Walk::Backward(call, OfKernels(call, args), status);
  }
  static int32_t OverlappedForward(const RnnCall& call, const HasteRnnForwardArgs& args,
                                   const OverlapFlags& flags, HasteStatus* status) {
    HASTE_TRY(Walk::OverlappedForward(call, OfKernels(call, args), flags, status));
    return Drop(call, args, status);
  }
  static int32_t OverlappedBackward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                                    const OverlapFlags& flags, HasteStatus* status) {
    return Walk::OverlappedBackward(call, OfKernels(call, args), flags, status);
  }

 private:
  static constexpr int kLast = SavedTensors<Cell>();

  static bool Drops(const RnnCall& call) {
    return call.config.training != 0 && call.config.recurrent_dropout > 0;
  }
  template <class Args>
  static Args OfKernels(const RnnCall& call, Args args) {
    if (Drops(call)) args.saved[0] = args.saved[kLast];
    return args;
  }
  static int32_t Drop(const RnnCall& call, const HasteRnnForwardArgs& args, HasteStatus* status) {
    if (!args.keep || !Drops(call)) return HASTE_OK;
    return CudaDropHidden(call.config, args.seed, args.saved[kLast], args.saved[0], call.executor,
                          status);
  }
};
template <class Cell, class Walk>
using WalkOf = std::conditional_t<kMixesHidden<Cell>, MixesHidden<Cell, Walk>, Walk>;

}  // namespace haste

// X(name in symbols, storage type) for each.
#define HASTE_UNIT_16(X) X(f16, Half) X(bf16, Bfloat16)
#define HASTE_UNIT_BF16(X) X(bf16, Bfloat16)
#define HASTE_UNIT_TF32(X) X(tf32, TensorFloat)
#define HASTE_UNIT_32(X) X(f32, float)
#define HASTE_UNIT_32_TF32(X) X(f32, float) X(tf32, TensorFloat)
#define HASTE_UNIT_32_64(X) X(f32, float) X(f64, double)
#define HASTE_UNIT_ALL(X) HASTE_UNIT_16(X) HASTE_UNIT_32_64(X)

// The last argument: a class with static WorkspaceBytes, Forward and Backward.
#define HASTE_DEFINE_ENGINE(KIND, CELL, NAME, ...)                                    \
  HASTE_DEFINE_EXPANDED_ENGINE(                                                       \
      KIND, CELL, NAME,                                                               \
      {WalkOf<CELL, __VA_ARGS__>::WorkspaceBytes, WalkOf<CELL, __VA_ARGS__>::Forward, \
       WalkOf<CELL, __VA_ARGS__>::Backward})
// The same, with OverlappedForward and OverlappedBackward too.
#define HASTE_DEFINE_OVERLAPPED_ENGINE(KIND, CELL, NAME, ...)                         \
  HASTE_DEFINE_EXPANDED_ENGINE(                                                       \
      KIND, CELL, NAME,                                                               \
      {WalkOf<CELL, __VA_ARGS__>::WorkspaceBytes, WalkOf<CELL, __VA_ARGS__>::Forward, \
       WalkOf<CELL, __VA_ARGS__>::Backward, nullptr, nullptr,                         \
       WalkOf<CELL, __VA_ARGS__>::OverlappedForward,                                  \
       WalkOf<CELL, __VA_ARGS__>::OverlappedBackward})
#define HASTE_DEFINE_EXPANDED_ENGINE(KIND, CELL, NAME, ...) \
  extern const Engine KIND##_##CELL##_##NAME;               \
  const Engine KIND##_##CELL##_##NAME = __VA_ARGS__;
