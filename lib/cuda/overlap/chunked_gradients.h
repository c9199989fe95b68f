// The products of a layer's gradients, part by part of its walk backward (lib/plan/overlap.h).
#ifndef HASTE_LIB_CUDA_OVERLAP_CHUNKED_GRADIENTS_H_
#define HASTE_LIB_CUDA_OVERLAP_CHUNKED_GRADIENTS_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"
#include "lib/plan/gemm.h"
#include "lib/plan/overlap.h"

namespace haste {

class ChunkedGradients {
 public:
  // Refers to all of them.
  ChunkedGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                   const OverlappedGradients& overlap)
      : config_(config),
        cell_(cell),
        layer_(layer),
        rnn_(rnn),
        overlap_(overlap),
        one_direction_(OneDirection(config)) {}

  // Of memory, whichever gradients are wanted.
  int32_t Bytes(size_t* bytes, HasteStatus*) const;
  // Before the first part, a part, and after the last one.
  int32_t Begin(const HasteExecutor&, HasteStatus*) const;
  int32_t Multiply(int64_t chunk, void* memory, const HasteExecutor&, HasteStatus*) const;
  int32_t Finish(void* memory, const HasteExecutor&, HasteStatus*) const;

 private:
  // Where gradients are added up, and what a product takes.
  struct Room {
    float *W, *R;
    char* product;
    size_t sums_bytes;
  };
  Room RoomIn(void* memory) const;
  // In 16 bits sums have memory of their own.
  bool HasOwnSums() const;
  // A row's dx is the sum of both directions' products: of floats it is added up, else made once
  // both are there.
  bool AddsInput() const { return !one_direction_ && !overlap_.cublas; }
  bool InputComesWhole() const { return !one_direction_ && overlap_.cublas; }

  bool Reverse(int64_t k) const { return config_.reverse != nullptr && config_.reverse[k]; }
  int64_t Size() const;
  int64_t Lane() const { return cell_.gates * config_.hidden; }
  int64_t Width() const { return config_.lanes * Lane(); }
  int64_t WeightsOfInput() const { return layer_.features * Width(); }
  int64_t WeightsOfStates() const { return config_.hidden * Width(); }
  const void* At(const void* tensor, int64_t element) const;
  HasteRnnConfig Of(const Times&) const;
  RowRuns Runs(const Times& times) const { return {times.count, config_.time, 1}; }

  // dx, of what lanes [k, end) leave.
  ProductChunk Input(const Times&, int64_t k, int64_t end) const;
  // Calls run(product) for each of those of W and R, of lanes [k, end), which walk in one
  // direction. one: they are, where they can be. adds: there were times before.
  template <class Run>
  int32_t OfWeights(const Room&, const Times&, int64_t k, int64_t end, bool one, bool adds,
                    const Run& run) const;
  // And for all of a part.
  template <class Run>
  int32_t OfChunk(int64_t chunk, const Room&, bool one, const Run& run) const;

  const HasteRnnConfig& config_;
  const HasteCellInfo& cell_;
  const HasteLayerBackwardArgs& layer_;
  const HasteRnnBackwardArgs& rnn_;
  const OverlappedGradients& overlap_;
  const bool one_direction_;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_OVERLAP_CHUNKED_GRADIENTS_H_
