// All steps of `tiled`, backward, where R is stationary: what warps do, and the kernel. What a
// thread does with its elements is in stationary_backward.cuh.
#pragma once

#include <algorithm>

#include "lib/cuda/tiled/stationary_backward_chunks.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"
#include "lib/cuda/tiled/stationary_product.cuh"

namespace haste {

// What the warps that multiply do. first: the walk's first step. count: of steps, or of products
// where a step has two.
template <class Elements, int kTurns, class Params>
HASTE_DEVICE void WalkStationaryBackward(const Params& p, const StationaryBackwardPlace& place,
                                         const StationaryBlock<kTurns>& block, int64_t first,
                                         int64_t count) {
  using T = typename Params::Storage;
  constexpr int kRows = Elements::kTileRows;
  const int half = UniformOfWarp(threadIdx.x / 128);
  unsigned char* kept = stationary_shared + block.layout.kept;
  StationarySignal<kTurns> signal = block.signal;
  using Product = StationaryProduct<T, kRows, Elements::kRegisterDepth, Elements::kShares,
                                    Elements::kScaled, Params::kTerms>;
  Product product(p.tiling, block.pipeline, block.slots(), kept, half);
  const int64_t number =
      (place.lane * p.tiling.unit_tiles + place.unit_tile) * p.tiling.splits + place.split;
  product.Keep(p.kernel + number * p.tiling.chunks * (p.tiling.kernel_chunk_bytes() / 16), kept,
               half);
  const typename Elements::Meeting meeting(p, place, block.layout);
  Elements elements(p, place, first);
  StationaryTurns<kTurns, typename Elements::States> states;
  HASTE_UNROLL for (int i = 0; i < kTurns; ++i) {
    if (i < place.turns) elements.LoadStates(i, states.of[i]);
  }
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // the part of R in shared memory
  constexpr bool kLate = kTurns > 1 && Elements::kMovesLate;
  constexpr int kBegun = kTurns > 1 ? std::min(Elements::kBegun, Product::kKept - 1) : 0;
  // Steps before which a product begins early: all or none. With one tile the next operand would
  // never come. (A flag and a comparison with `count` instead makes kernels spill.)
  const bool begins = kBegun > 0 && place.turns > 1 && p.tiling.chunks >= kChunksToBegin;
  const int64_t begun_until = begins ? count : 0;
  int64_t products = 0;
  float own_sums[kRows / 2];
  for (int64_t ended = 0; ended < count; ++ended, elements.NextStep()) {
    const int64_t step = first - ended / Elements::kProducts;
#pragma unroll 1
    for (int turn = 0; turn < place.turns; ++turn, states.Next(place.turns)) {
      // A turn whose warps have stored an operand comes before this one.
      const bool follows = (ended > 0 || turn > 0) && (step >= 0 || turn == 0);
      const auto move = [&] {
        if constexpr (kLate) {
          if (follows) elements.Write(turn > 0 ? turn - 1 : place.turns - 1);
          if (step >= 0) elements.Load(turn, step);
        }
      };
      if (step >= 0) {
        if constexpr (kLate) {
          elements.Prefetch(turn);
        } else {
          elements.Load(turn, step);
        }
      }
      const auto begin_next = [&] {
        if constexpr (kBegun > 0) {
          const int64_t next = ended + (turn + 1 == place.turns);
          if (next > 0 && next < begun_until) product.template Begin<kBegun>(own_sums);
        }
      };
      float sums[4] = {};
      if (ended == 0) {
        if (follows) signal.AwaitLast();
        move();
        begin_next();
      } else {
        if constexpr (Elements::kProducts > 1) {
          product.MultiplyPart(ended % 2 != 0, own_sums);
        } else {
          begun_until > 0 ? product.template Finish<kBegun>(own_sums) : product.Multiply(own_sums);
        }
        if (follows) signal.AwaitLast();  // all have read what halves exchanged
        meeting.Push(products, own_sums);
        move();
        begin_next();
        meeting.Get(products++, sums);
        elements.Unscale(sums);
      }
      if (step < 0) {
        elements.WriteInitial(turn, sums, states.of[0]);
        NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // all have read, as above
        continue;
      }
      elements.Step(turn, ended, sums, states.of[0]);
      signal.Stored();
      if constexpr (!kLate) elements.Write(turn);
    }
  }
  if (kLate && first - count >= -1) elements.Write(place.turns - 1);
  for (int turn = 0; turn < place.turns; ++turn) elements.End(turn);
}

// All steps of the walk. Elements: what a thread does with its elements, StationaryBackwardElements
// or what has the same functions. kTurns: row tiles of a block, at most.
template <class Elements, int kTurns, class Params>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    StationaryBackwardSteps(const __grid_constant__ Params p, int64_t first, int64_t count) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  using Chunks = typename Elements::Chunks;
  const StationaryBackwardPlace place(p.tiling);
  const StationaryBlock<kTurns> block(p.tiling);
  if (threadIdx.x == 0) {
    block.Init(p.tiling);
    typename Elements::Meeting(p, place, block.layout).Init();
  }
  __syncthreads();
  ClusterSync();
  int64_t products = count, stored = min(count, first + 1);
  if constexpr (Elements::kProducts > 1) {
    stored *= Elements::kProducts;
    products = stored + (count > first + 1);  // step -1 has the first alone
  }
  if (threadIdx.x >= kStationaryElementThreads) {
    DeallocateRegisters<24>();
    ServeStationary(p.tiling, Chunks(p, place), block.pipeline, block.slots(), block.signal,
                    place.turns, 1, static_cast<int>(products), static_cast<int>(stored));
  } else {
    AllocateRegisters<240>();
    WalkStationaryBackward<Elements>(p, place, block, first, products);
  }
  ClusterSync();  // others may still signal this block
#endif
}

}  // namespace haste
