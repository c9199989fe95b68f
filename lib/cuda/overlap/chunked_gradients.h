// The products of a layer's gradients, time chunk by time chunk of its backward walk
// (lib/plan/overlap.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"
#include "lib/plan/gemm/gemm.h"
#include "lib/plan/overlap.h"

namespace haste {

class ChunkedGradients {
 public:
  // Keeps references to all arguments.
  ChunkedGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                   const OverlappedGradients& overlap)
      : config_(config),
        cell_(cell),
        layer_(layer),
        rnn_(rnn),
        overlap_(overlap),
        one_direction_(OneDirection(config)) {}

  // Bytes of memory, enough for any set of wanted gradients.
  int32_t Bytes(size_t* bytes, HasteStatus*) const;
  // Called before the first time chunk, for each chunk, and after the last one.
  int32_t Begin(const HasteExecutor&, HasteStatus*) const;
  int32_t Multiply(int64_t chunk, void* memory, const HasteExecutor&, HasteStatus*) const;
  int32_t Finish(void* memory, const HasteExecutor&, HasteStatus*) const;

 private:
  // Memory where gradients are added up, and workspace of a product.
  struct Room {
    float *W, *R;
    char* product;
    size_t sums_bytes;
  };
  Room RoomIn(void* memory) const;
  // With 16-bit gradients, sums have memory of their own.
  bool HasOwnSums() const;
  // A row's dx is the sum of both directions' products. For floats it is accumulated; otherwise it
  // is made when both are ready.
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

  // dx from the gradients of lanes [k, end).
  ProductChunk Input(const Times&, int64_t k, int64_t end) const;
  // Calls run(product) for the products of W and R of lanes [k, end), which walk in one direction.
  // one: as one product where possible. adds: there were earlier time chunks.
  template <class Run>
  int32_t OfWeights(const Room&, const Times&, int64_t k, int64_t end, bool one, bool adds,
                    const Run& run) const;
  // The same for everything in a time chunk.
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
