// How the operands of a product (mainloop.cuh) get to the warpgroups that multiply them: K-block by
// K-block, through a pipeline of stages in shared memory.
#pragma once

#include "lib/cuda/gemm/params.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/ptx/pipeline.cuh"

namespace haste {

// Bytes: of a line of packed depths; of a panel's, one part of them; of an operand's K-block, which
// is two of these, and of a stage, both operands.
constexpr int kLineBytes = 2 * kPackedDepth, kPartBytes = kPanel * kLineBytes;
constexpr int kKBlockBytes = 2 * kPartBytes, kStageBytes = 2 * kKBlockBytes;
constexpr int kTileStages = 6;

template <int kTerms>
class TilePipeline {
 public:
  HASTE_DEVICE TilePipeline(unsigned char* stages, TransactionBarrier* full,
                            TransactionBarrier* empty, int half)
      : stages_(stages), pipeline_(full, empty), half_(half) {}

  HASTE_DEVICE void Init() const {
    pipeline_.Init(kTileStages, 2 * kWarpsOfTile<kTerms>);  // of both blocks
  }
  HASTE_DEVICE unsigned char* a() const { return stages_ + stage_ * kStageBytes; }
  HASTE_DEVICE unsigned char* b() const { return a() + kKBlockBytes; }
  // Fetches a K-block of a. FetchB fetches this block's half of a K-block of b, for both blocks.
  // AwaitFree returns at once in the first lap.
  HASTE_DEVICE void FetchA(const unsigned char* from) const {
    pipeline_.AwaitFree(stage_, lap_ ^ 1);
    pipeline_.Expect(stage_, kStageBytes);
    pipeline_.Copy(stage_, a(), from, kKBlockBytes);
  }
  HASTE_DEVICE void FetchB(const unsigned char* from) const {
    constexpr int kHalf = kKBlockBytes / 2;
    pipeline_.AwaitFree(stage_, lap_ ^ 1);
    pipeline_.CopyTo(3, stage_, b() + half_ * kHalf, from + half_ * kHalf, kHalf);
  }
  HASTE_DEVICE void Wait() const { pipeline_.Wait(stage_, lap_); }
  // Frees the previous stage.
  HASTE_DEVICE void FreeLast() const {
    const int last = stage_ == 0 ? kTileStages - 1 : stage_ - 1;
    if (threadIdx.x % 32 < 2) pipeline_.FreeIn(threadIdx.x % 32, last);
  }
  HASTE_DEVICE void Next() {
    if (++stage_ < kTileStages) return;
    stage_ = 0;
    lap_ ^= 1;
  }
  // Skips stages that belong to the other warpgroup.
  HASTE_DEVICE void Skip(int stages) {
    const int to = stage_ + stages;
    stage_ = to % kTileStages;
    lap_ ^= to / kTileStages & 1;
  }

 private:
  unsigned char* const stages_;
  const Pipeline pipeline_;
  const int half_;
  int stage_ = 0;
  uint32_t lap_ = 0;
};

// of_a: of the two operands.
template <class T, class C>
HASTE_DEVICE void FetchPieces(const ScaledProduct<T, C>& p, bool of_a, int half,
                              ProductPieces* pieces, TilePipeline<kMmaTerms<T>>* pipeline) {
  const auto* operand = reinterpret_cast<const unsigned char*>(of_a ? p.a : p.b);
  ProductPiece piece;
  while (pieces->Next(&piece)) {
    const int64_t panel =
        of_a ? int64_t{p.order.Row(piece.tile)} * 2 + half : p.order.Column(piece.tile);
    const unsigned char* from = operand + panel * p.work.k_blocks * kKBlockBytes;
    for (int k_block = piece.from; k_block < piece.to; ++k_block) {
      const unsigned char* at = from + int64_t{k_block} * kKBlockBytes;
      of_a ? pipeline->FetchA(at) : pipeline->FetchB(at);
      pipeline->Next();
    }
  }
}

// Which of two alternating warpgroups may multiply now. It waits until the other one's stages have
// been filled, because a barrier's parity does not tell one lap from the next but one.
class Turns {
 public:
  HASTE_DEVICE explicit Turns(int warpgroup) : warpgroup_(warpgroup) {}

  HASTE_DEVICE void Await() const { NamedBarrierSync<kThreads>(kName + warpgroup_); }
  HASTE_DEVICE void HandOver() const { NamedBarrierArrive<kThreads>(kName + 1 - warpgroup_); }

 private:
  static_assert(kTileWarpgroups == 2, "there is one other");
  static constexpr int kName = 1, kThreads = kTileWarpgroups * 128;

  const int warpgroup_;
};

}  // namespace haste
