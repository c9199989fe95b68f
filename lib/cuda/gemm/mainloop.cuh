// The mainloop and epilogue of a product: tiles of c by wgmma, from operands packed by pack.cuh.
//
// Two blocks of a cluster have the upper and the lower half of a tile's rows. In each block, two
// threads fetch K-blocks of the operands into a pipeline of stages (pipeline.cuh); for b, each
// block fetches one half for both. Two warpgroups multiply. With two split terms, each has 64 rows
// of every tile in registers, and keeps the sums of a0·b0 separate from those of a0·b1 + a1·b0, so
// that the latter are not cut off. With one split term they take turns at whole tiles, so that one
// multiplies while the other stores.
#pragma once

#include "lib/cuda/gemm/pipeline.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/wgmma.cuh"

namespace haste {

// Transposed staging of a warp's sums, so that whole lines of memory are stored: 16 rows × 32
// columns, with a stride that avoids bank conflicts.
constexpr int kTurnedColumns = 32, kTurnedStride = 40;
using TransposedStaging = float[16][kTurnedStride];

// A warpgroup's rows of a tile, 64 at a time.
template <class T, class C>
class TileSums {
  static constexpr int kTerms = kMmaTerms<T>;
  static constexpr bool kScales = kScaledTerms<T> > 0;
  static constexpr int kUnit = 16, kStep = 256;  // bytes: a descriptor's unit; 16 of the depth
  static constexpr int kRows = 64;               // of one wgmma
  static constexpr int kRowTiles = kTakeTurns<kTerms> ? kPanel / kRows : 1;

 public:
  HASTE_DEVICE explicit TileSums(int warpgroup)
      : first_row_(kTakeTurns<kTerms> ? 0 : warpgroup * kRows) {}

  // Of K-blocks that come through the pipeline. came: called when all have.
  template <class OnLastLoad>
  HASTE_DEVICE void Multiply(int k_blocks, TilePipeline<kTerms>* pipeline,
                             const OnLastLoad& on_last_load) {
    HASTE_UNROLL for (int tile = 0; tile < kRowTiles; ++tile) {
      HASTE_UNROLL for (int i = 0; i < kPanel / 2; ++i) large_[tile][i] = 0.0f;
    }
    HASTE_UNROLL for (int i = 0; i < kSmall; ++i) small_[i] = 0.0f;
    for (int i = 0; i < k_blocks; ++i) {
      pipeline->Wait();
      MultiplyKBlock(pipeline->a(), pipeline->b());
      WaitWarpgroupMma<1>();
      if (i > 0) pipeline->FreeLast();
      pipeline->Next();
    }
    on_last_load();
    WaitWarpgroupMma<0>();
    pipeline->FreeLast();
  }

  // Epilogue prepare: where the next sums go. Starts the loads that do not depend on sums.
  HASTE_DEVICE void PrepareStore(const TileOfC<C>& to) {
    to_ = to;
    const int lane = threadIdx.x % 32;
    HASTE_UNROLL for (int tile = 0; tile < kRowTiles; ++tile) {
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        rows_[tile][i] = to.Row(FirstRow(tile) + i * 4 + lane / 8);
      }
    }
    if constexpr (kBiasFirst) {
      HASTE_UNROLL for (int part = 0; part < kColumnParts; ++part) bias_[part] = Bias<false>(part);
    }
  }
  // Epilogue store: stores the sums with the bias, or adds them to what is there. row_most,
  // column_most: of the tile's lines.
  HASTE_DEVICE void Put(const uint32_t* row_most, const uint32_t* column_most, bool adds,
                        TransposedStaging& turned) {
    if (to_.IsWhole()) {
      PutRows<true>(row_most, column_most, adds, turned);
    } else {
      PutRows<false>(row_most, column_most, adds, turned);
    }
  }

 private:
  // With scales, or with float32 sums to be added to, there are no registers left for it.
  static constexpr bool kBiasFirst = !kScales && !std::is_same_v<C, float>;

  // This warp's of a tile of rows.
  HASTE_DEVICE int FirstRow(int tile) const {
    return first_row_ + tile * kRows + threadIdx.x / 32 % 4 * 16;
  }
  // Of those turned, when they leave.
  static HASTE_DEVICE int TurnedColumn() { return threadIdx.x % 8 * 4; }
  template <bool kWhole>
  HASTE_DEVICE float4 Bias(int part) const {
    return to_.template Load<kWhole>(to_.bias, part * kTurnedColumns + TurnedColumn());
  }

  template <bool kWhole>
  HASTE_DEVICE void PutRows(const uint32_t* row_most, const uint32_t* column_most, bool adds,
                            TransposedStaging& turned) {
    HASTE_UNROLL for (int tile = 0; tile < kRowTiles; ++tile) {
      PutRows<kWhole>(tile, row_most, column_most, adds, turned);
    }
  }
  template <bool kWhole>
  HASTE_DEVICE void PutRows(int tile, const uint32_t* row_most, const uint32_t* column_most,
                            bool adds, TransposedStaging& turned) {
    const int lane = threadIdx.x % 32, column = TurnedColumn();
    C* const(&rows)[4] = rows_[tile];
    float row_scale[2] = {1, 1};
    float4 column_scale[kColumnParts];
    if constexpr (kScales) {
      HASTE_UNROLL for (int i = 0; i < 2; ++i) {
        row_scale[i] = Undoing(row_most[FirstRow(tile) + lane / 4 + 8 * i]);
      }
      HASTE_UNROLL for (int part = 0; part < kColumnParts; ++part) {
        const auto* most = column_most + part * kTurnedColumns + column;
        const uint4 bits = *reinterpret_cast<const uint4*>(most);
        column_scale[part] =
            make_float4(Undoing(bits.x), Undoing(bits.y), Undoing(bits.z), Undoing(bits.w));
      }
    }
    HASTE_UNROLL for (int part = 0; part < kColumnParts; ++part) {
      __syncwarp();
      HASTE_UNROLL for (int i = 0; i < kTurnedColumns / 8 * 2; ++i) {
        const int from = part * kTurnedColumns / 2 + 2 * i;
        *reinterpret_cast<float2*>(&turned[lane / 4 + i % 2 * 8][i / 2 * 8 + lane % 4 * 2]) =
            make_float2(Sum(tile, from), Sum(tile, from + 1));
      }
      __syncwarp();
      float4 sums[4];
      const float4 bias = kBiasFirst ? bias_[part] : Bias<kWhole>(part);
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        sums[i] = adds ? to_.template Load<kWhole>(rows[i], part * kTurnedColumns + column) : bias;
      }
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        const int row = i * 4 + lane / 8;
        // The scales of rows are in the lanes that had the sums.
        const float scale = __shfl_sync(0xFFFFFFFFu, row_scale[i / 2], row % 8 * 4);
        const auto more = *reinterpret_cast<const float4*>(&turned[row][column]);
        sums[i].x += Unscaled(more.x, scale, column_scale[part].x);
        sums[i].y += Unscaled(more.y, scale, column_scale[part].y);
        sums[i].z += Unscaled(more.z, scale, column_scale[part].z);
        sums[i].w += Unscaled(more.w, scale, column_scale[part].w);
        to_.template Store<kWhole>(rows[i], part * kTurnedColumns + column, sums[i]);
      }
    }
  }

  HASTE_DEVICE void MultiplyKBlock(const unsigned char* a, const unsigned char* b) {
    constexpr int kFurther =
        kPartBytes / kUnit;  // the second split term, or the second half of the depth
    const uint64_t of_a = CoreMatrices<kPackedDepth>(a) + first_row_ * (kLineBytes / kUnit);
    const uint64_t of_b = CoreMatrices<kPackedDepth>(b);
    BeginWarpgroupMma();
    HASTE_UNROLL for (int i = 0; i < KBlockDepth(kTerms) / 16; ++i) {
      constexpr int kSteps = kPackedDepth / 16;
      const int at = i / kSteps * kFurther + i % kSteps * (kStep / kUnit);
      HASTE_UNROLL for (int tile = 0; tile < kRowTiles; ++tile) {
        constexpr int kTileAt = kRows * kLineBytes / kUnit;
        WarpgroupMma<MmaOperand<T>, kPanel>(large_[tile], of_a + tile * kTileAt + at, of_b + at);
      }
      if constexpr (kTerms == 2) {
        WarpgroupMma<Half, kPanel>(small_, of_a + at, of_b + kFurther + at);
        WarpgroupMma<Half, kPanel>(small_, of_a + kFurther + at, of_b + at);
      }
    }
    CommitWarpgroupMma();
  }
  HASTE_DEVICE float Sum(int tile, int i) const {
    return kTerms == 2 ? large_[tile][i] + small_[i % kSmall] : large_[tile][i];
  }

  static HASTE_DEVICE float Undoing(uint32_t most) { return RowScale(most, kMostLineShift).down; }
  // a, b: powers of two. Their product may be out of range where the scaled sum is not.
  static HASTE_DEVICE float Unscaled(float sum, float a, float b) {
    if (!kScales) return sum;
    const float both = a * b;
    if (both >= PowerOfTwo(-126) && both <= PowerOfTwo(127)) return sum * both;
    return sum * fmaxf(a, b) * fminf(a, b);
  }

  static constexpr int kSmall = kTerms == 2 ? kPanel / 2 : 1;
  static constexpr int kColumnParts = kPanel / kTurnedColumns;

  const int first_row_;
  TileOfC<C> to_;
  C* rows_[kRowTiles][4];
  float4 bias_[kBiasFirst ? kColumnParts : 1];
  float large_[kRowTiles][kPanel / 2], small_[kSmall];
};

// first_row: this block's first row in a tile.
template <class T, class C>
HASTE_DEVICE void MultiplyPieces(const ScaledProduct<T, C>& p, int first_row, int warpgroup,
                                 ProductPieces* pieces, TilePipeline<kMmaTerms<T>>* pipeline,
                                 TransposedStaging& turned) {
  constexpr bool kTurns = kTakeTurns<kMmaTerms<T>>;
  TileSums<T, C> sums(warpgroup);
  const Turns turns(warpgroup);
  ProductPiece piece, next;
  bool more = pieces->Next(&next);
  for (int i = 0; more; ++i) {
    piece = next;
    more = pieces->Next(&next);
    if (kTurns && i % kTileWarpgroups != warpgroup) {
      pipeline->Skip(piece.to - piece.from);
      continue;
    }
    const int64_t row = int64_t{p.order.Row(piece.tile)} * kProductRows + first_row;
    const int64_t column = int64_t{p.order.Column(piece.tile)} * kPanel;
    const auto& rows = p.rows[row >= p.split ? 1 : 0];
    TileOfC<C> to = {rows.c + column,
                     p.bias == nullptr ? nullptr : p.bias + column,
                     rows.stride,
                     rows.runs,
                     rows.first + row,
                     static_cast<int>(max(min(rows.end - row, int64_t{kPanel}), int64_t{0})),
                     static_cast<int>(min(p.columns - column, int64_t{kPanel})),
                     p.aligned};
    bool adds = p.adds;
    // In K-blocks. With one split term, its rounding is coarser than what is cut off.
    const int at_once = kTurns ? piece.to - piece.from : kSumDepth / KBlockDepth(kMmaTerms<T>);
    if constexpr (std::is_same_v<C, float>) {
      if (piece.slot >= 0) {
        adds = p.adds_waiting;
        to = {p.waiting, nullptr, kPanel, {}, int64_t{piece.slot} * kProductRows + first_row,
              kPanel,    kPanel,  true};
      }
    }
    sums.PrepareStore(to);
    if (kTurns && i > 0) turns.Await();
    for (int from = piece.from; from < piece.to; from += at_once) {
      sums.Multiply(min(at_once, piece.to - from), pipeline, [&] {
        if (kTurns && more && from + at_once >= piece.to) turns.HandOver();
      });
      sums.Put(p.a_most + row, p.b_most + column, adds, turned);
      adds = true;
    }
    if (p.ready != nullptr) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) SignalFlag(p.ready + p.order.CountOf(piece.tile));
    }
  }
}

extern __shared__ __align__(128) unsigned char tile_shared[];

template <class T, class C>
__global__ void __launch_bounds__(kTileThreads, 1)
    MultiplyTiles(const __grid_constant__ ScaledProduct<T, C> p) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  constexpr int kTerms = kMmaTerms<T>;
  __shared__ TransactionBarrier full[kTileStages], empty[kTileStages];
  __shared__ __align__(16) TransposedStaging turned[kTileWarps];
  const int half = blockIdx.x % 2;
  TilePipeline<kTerms> pipeline(tile_shared, full, empty, half);
  if (threadIdx.x == 0) pipeline.Init();
  ClusterSync();
  WaitForPreviousKernel();
  ProductPieces pieces(p.work, blockIdx.x / 2);
  // Two threads of the last warpgroup are the producers, one for each operand.
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == kTileWarpgroups) {
    DeallocateRegisters<40>();
    const int fetcher = threadIdx.x % 128;
    if (fetcher % 32 == 0 && fetcher < 64) FetchPieces(p, fetcher == 0, half, &pieces, &pipeline);
    __syncwarp();
  } else {
    AllocateRegisters<232>();
    MultiplyPieces(p, half * kPanel, warpgroup, &pieces, &pipeline, turned[threadIdx.x / 32]);
  }
  ClusterSync();  // a block's shared memory must exist until the other block has sent everything
#endif
}

// Adds up the waiting partial sums, in the order of the depth. A block has 8 rows of a shared tile.
template <class T>
__global__ void __launch_bounds__(kPanel)
    AddPieces(const __grid_constant__ ScaledProduct<T, float> p) {
  WaitForPreviousKernel();
  const ProductWork& work = p.work;
  const int shared_tile = blockIdx.x / (kProductRows / 8);
  const int tile = work.whole + shared_tile;
  const int first_row = blockIdx.x % (kProductRows / 8) * 8;
  const int64_t row = int64_t{p.order.Row(tile)} * kProductRows + first_row;
  const int64_t column = int64_t{p.order.Column(tile)} * kPanel + threadIdx.x;
  const int first = work.FirstPeer(shared_tile);
  const int64_t end = (int64_t{shared_tile} + 1) * work.k_blocks;
  // Then its block had the whole tile.
  if (work.Begin(first) <= end - work.k_blocks && work.Begin(first + 1) >= end) return;
  float sums[8] = {};
  for (int sharer = first; sharer < work.sharers && work.Begin(sharer) < end; ++sharer) {
    const float* from =
        p.waiting + (int64_t{work.Slot(sharer, shared_tile)} * kProductRows + first_row) * kPanel;
    HASTE_UNROLL for (int i = 0; i < 8; ++i) sums[i] += from[i * kPanel + threadIdx.x];
  }
  if (column >= p.columns) return;
  const auto& rows = p.rows[row >= p.split ? 1 : 0];
  const float bias = p.bias_of_pieces == nullptr ? 0.0f : p.bias_of_pieces[column];
  HASTE_UNROLL for (int i = 0; i < 8; ++i) {
    if (row + i >= rows.end) break;
    float* at = rows.c + rows.runs.At(rows.first + row + i) * rows.stride + column;
    *at = (p.adds_pieces ? *at : bias) + sums[i];
  }
}

}  // namespace haste
