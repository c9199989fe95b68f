// The product itself: tiles of c by wgmma, of operands as scaled_pack.cuh leaves them.
//
// Two blocks of a cluster have the upper and the lower half of a tile's rows. In each a thread
// fetches slabs of the operands into a ring of stages, of b one part for both blocks; two
// warpgroups have 64 rows each, in registers: sums of a0·b0, and of a0·b1 + a1·b0, apart, so that
// the latter are not cut off.
#ifndef HASTE_LIB_CUDA_SCALED_TILES_CUH_
#define HASTE_LIB_CUDA_SCALED_TILES_CUH_

#include "lib/cuda/scaled_product.cuh"
#include "lib/cuda/warpgroup_mma.cuh"

namespace haste {

// Bytes: of a line of a slab's part; of a part; of a stage, all parts of both operands.
constexpr int kLineBytes = 2 * kSlabDepth, kPartBytes = kPanel * kLineBytes;
template <int kParts>
constexpr int kStageBytes = 2 * kParts * kPartBytes;
template <int kParts>
constexpr int kTileStages = 12 / kParts;

// Of a warp's sums, on their way to whole lines of memory: 16 rows × 32 columns, so far apart that
// banks differ.
constexpr int kTurnedColumns = 32, kTurnedStride = 40;
using TurnedSums = float[16][kTurnedStride];

template <int kParts>
class TileRing {
  static constexpr int kStages = kTileStages<kParts>, kBytes = kStageBytes<kParts>;
  static constexpr int kOperandBytes = kParts * kPartBytes;

 public:
  __device__ __forceinline__ TileRing(unsigned char* stages, ArrivalCounter* full,
                                      ArrivalCounter* empty, int half)
      : stages_(stages), full_(full), empty_(empty), half_(half) {}

  __device__ __forceinline__ void Init() const {
    for (int i = 0; i < kStages; ++i) {
      full_[i].Init(1);
      empty_[i].Init(2 * kTileWarps);  // warps of both blocks
    }
  }
  __device__ __forceinline__ unsigned char* a() const { return stages_ + stage_ * kBytes; }
  __device__ __forceinline__ unsigned char* b() const { return a() + kOperandBytes; }
  __device__ __forceinline__ void Fetch(const unsigned char* from_a,
                                        const unsigned char* from_b) const {
    empty_[stage_].Wait(lap_ ^ 1);  // at once in the first lap
    full_[stage_].Expect(kBytes);
    CopyBulk(a(), from_a, kOperandBytes, &full_[stage_]);
    constexpr int kHalf = kOperandBytes / 2;
    CopyBulkTo(3, b() + half_ * kHalf, from_b + half_ * kHalf, kHalf, &full_[stage_]);
  }
  __device__ __forceinline__ void Wait() const { full_[stage_].Wait(lap_); }
  // The stage before this one.
  __device__ __forceinline__ void FreeLast() const { Free(stage_ == 0 ? kStages - 1 : stage_ - 1); }
  __device__ __forceinline__ void Next() {
    if (++stage_ < kStages) return;
    stage_ = 0;
    lap_ ^= 1;
  }

 private:
  __device__ __forceinline__ void Free(int stage) const {
    if (threadIdx.x % 32 < 2) empty_[stage].ArriveIn(threadIdx.x % 32);
  }

  unsigned char* const stages_;
  ArrivalCounter *const full_, *const empty_;
  const int half_;
  int stage_ = 0;
  uint32_t lap_ = 0;
};

// A warpgroup's 64 rows of a tile.
template <class T>
class TileSums {
  static constexpr int kParts = kMmaParts<T>;
  static constexpr bool kScales = kScaledParts<T> > 0;
  static constexpr int kUnit = 16, kStep = 256;  // bytes: of a descriptor's 1, of 16 of the depth

 public:
  __device__ __forceinline__ explicit TileSums(int warpgroup) : warpgroup_(warpgroup) {}

  // Of slabs that come through the ring.
  __device__ __forceinline__ void Multiply(int slabs, TileRing<kParts>* ring) {
#pragma unroll
    for (int i = 0; i < kPanel / 2; ++i) large_[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < kSmall; ++i) small_[i] = 0.0f;
    for (int i = 0; i < slabs; ++i) {
      ring->Wait();
      MultiplySlab(ring->a(), ring->b());
      WaitWarpgroupMma<1>();
      if (i > 0) ring->FreeLast();
      ring->Next();
    }
    WaitWarpgroupMma<0>();
    ring->FreeLast();
  }

  // Stores them with the bias, or adds them to what is there. row_most, column_most: of the tile's
  // lines.
  template <class C>
  __device__ __forceinline__ void Put(const uint32_t* row_most, const uint32_t* column_most,
                                      const TileOfC<C>& to, bool adds, TurnedSums& turned) const {
    const int lane = threadIdx.x % 32;
    const int first_row = warpgroup_ * 64 + threadIdx.x / 32 % 4 * 16;
    const int column = lane % 8 * 4;  // of those turned, when they leave
    float row_scale[2] = {1, 1};
    float4 column_scale[kPanel / kTurnedColumns];
    if constexpr (kScales) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        row_scale[i] = Undoing(row_most[first_row + lane / 4 + 8 * i]);
      }
#pragma unroll
      for (int part = 0; part < kPanel / kTurnedColumns; ++part) {
        const auto* most = column_most + part * kTurnedColumns + column;
        const uint4 bits = *reinterpret_cast<const uint4*>(most);
        column_scale[part] =
            make_float4(Undoing(bits.x), Undoing(bits.y), Undoing(bits.z), Undoing(bits.w));
      }
    }
    C* rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = to.Row(first_row + i * 4 + lane / 8);
#pragma unroll
    for (int part = 0; part < kPanel / kTurnedColumns; ++part) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kTurnedColumns / 8 * 2; ++i) {
        const int from = part * kTurnedColumns / 2 + 2 * i;
        *reinterpret_cast<float2*>(&turned[lane / 4 + i % 2 * 8][i / 2 * 8 + lane % 4 * 2]) =
            make_float2(Sum(from), Sum(from + 1));
      }
      __syncwarp();
      float4 sums[4];
      const float4 bias = to.Load(to.bias, part * kTurnedColumns + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i] = adds ? to.Load(rows[i], part * kTurnedColumns + column) : bias;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = i * 4 + lane / 8;
        // Rows' scales are with the lanes that had the sums.
        const float scale = __shfl_sync(0xFFFFFFFFu, row_scale[i / 2], row % 8 * 4);
        const auto more = *reinterpret_cast<const float4*>(&turned[row][column]);
        sums[i].x += Unscaled(more.x, scale, column_scale[part].x);
        sums[i].y += Unscaled(more.y, scale, column_scale[part].y);
        sums[i].z += Unscaled(more.z, scale, column_scale[part].z);
        sums[i].w += Unscaled(more.w, scale, column_scale[part].w);
        to.Store(rows[i], part * kTurnedColumns + column, sums[i]);
      }
    }
  }

 private:
  __device__ __forceinline__ void MultiplySlab(const unsigned char* a, const unsigned char* b) {
    const uint64_t of_a = CoreMatrices<kSlabDepth>(a) + warpgroup_ * (64 * kLineBytes / kUnit);
    const uint64_t of_b = CoreMatrices<kSlabDepth>(b);
    constexpr int kSecond = kPartBytes / kUnit;
    BeginWarpgroupMma();
#pragma unroll
    for (int i = 0; i < kSlabDepth / 16; ++i) {
      const int at = i * kStep / kUnit;
      WarpgroupMma<MmaOperand<T>, kPanel>(large_, of_a + at, of_b + at);
      if constexpr (kParts == 2) {
        WarpgroupMma<Half, kPanel>(small_, of_a + at, of_b + kSecond + at);
        WarpgroupMma<Half, kPanel>(small_, of_a + kSecond + at, of_b + at);
      }
    }
    CommitWarpgroupMma();
  }
  __device__ __forceinline__ float Sum(int i) const {
    return kParts == 2 ? large_[i] + small_[i % kSmall] : large_[i];
  }

  static __device__ __forceinline__ float Undoing(uint32_t most) {
    return RowScale(most, kMostLineShift).down;
  }
  // Of two powers of two whose product may be out of range where what it scales is not.
  static __device__ __forceinline__ float Unscaled(float sum, float a, float b) {
    if (!kScales) return sum;
    const float both = a * b;
    if (both >= PowerOfTwo(-126) && both <= PowerOfTwo(127)) return sum * both;
    return sum * fmaxf(a, b) * fminf(a, b);
  }

  static constexpr int kSmall = kParts == 2 ? kPanel / 2 : 1;

  const int warpgroup_;
  float large_[kPanel / 2], small_[kSmall];
};

template <class T>
__device__ __forceinline__ void FetchPieces(const ScaledProduct<T>& p, int half,
                                            ProductPieces* pieces, TileRing<kMmaParts<T>>* ring) {
  constexpr int kBytes = kMmaParts<T> * kPartBytes;
  ProductPiece piece;
  while (pieces->Next(&piece)) {
    const int64_t panel = int64_t{p.order.Row(piece.tile)} * 2 + half;
    const int64_t column_tile = p.order.Column(piece.tile);
    const auto* a = reinterpret_cast<const unsigned char*>(p.a) + panel * p.work.slabs * kBytes;
    const auto* b =
        reinterpret_cast<const unsigned char*>(p.b) + column_tile * p.work.slabs * kBytes;
    for (int64_t slab = piece.from; slab < piece.to; ++slab) {
      ring->Fetch(a + slab * kBytes, b + slab * kBytes);
      ring->Next();
    }
  }
}

// first_row: of a tile's, this block's.
template <class T>
__device__ __forceinline__ void MultiplyPieces(const ScaledProduct<T>& p, int first_row,
                                               int warpgroup, ProductPieces* pieces,
                                               TileRing<kMmaParts<T>>* ring, TurnedSums& turned) {
  TileSums<T> sums(warpgroup);
  ProductPiece piece;
  while (pieces->Next(&piece)) {
    const int64_t row = int64_t{p.order.Row(piece.tile)} * kProductRows + first_row;
    const int64_t column = int64_t{p.order.Column(piece.tile)} * kPanel;
    using C = ElementOf<T>;
    const bool more = row >= p.split;
    const auto& rows = p.rows[more ? 1 : 0];
    TileOfC<C> to = {rows.c + column,
                     p.bias == nullptr ? nullptr : p.bias + column,
                     rows.stride,
                     rows.runs,
                     rows.first + row,
                     static_cast<int>(max(min(rows.end - row, int64_t{kPanel}), int64_t{0})),
                     static_cast<int>(min(p.columns - column, int64_t{kPanel})),
                     p.aligned};
    bool adds = p.adds;
    int at_once = piece.to - piece.from;  // slabs: 16 bits are coarser than what is cut off
    if constexpr (std::is_same_v<C, float>) {
      at_once = kSumSlabs;
      if (piece.slot >= 0) {
        adds = p.adds_waiting;
        to = {p.waiting, nullptr, kPanel, {}, int64_t{piece.slot} * kProductRows + first_row,
              kPanel,    kPanel,  true};
      }
    }
    for (int from = piece.from; from < piece.to; from += at_once) {
      sums.Multiply(min(at_once, piece.to - from), ring);
      sums.Put(p.a_most + row, p.b_most + column, to, adds, turned);
      adds = true;
    }
    if (p.ready != nullptr) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) CountPart(p.ready + p.order.CountOf(piece.tile));
    }
  }
}

extern __shared__ __align__(128) unsigned char tile_shared[];

template <class T>
__global__ void __launch_bounds__(kTileThreads, 1)
    MultiplyTiles(const __grid_constant__ ScaledProduct<T> p) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan sends no other GPU here
#else
  constexpr int kParts = kMmaParts<T>;
  __shared__ ArrivalCounter full[kTileStages<kParts>], empty[kTileStages<kParts>];
  __shared__ __align__(16) TurnedSums turned[kTileWarps];
  const int half = blockIdx.x % 2;
  TileRing<kParts> ring(tile_shared, full, empty, half);
  if (threadIdx.x == 0) ring.Init();
  ClusterSync();
  WaitForPreviousKernel();
  ProductPieces pieces(p.work, blockIdx.x / 2);
  // The last warpgroup fetches.
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == kTileWarpgroups) {
    FewerRegisters<40>();
    if (threadIdx.x % 128 == 0) FetchPieces(p, half, &pieces, &ring);
    __syncwarp();
  } else {
    MoreRegisters<232>();
    MultiplyPieces(p, half * kPanel, warpgroup, &pieces, &ring, turned[threadIdx.x / 32]);
  }
  ClusterSync();  // a block's memory is there until the other sends nothing more
#endif
}

// Adds up what waits, in the order of the depth. A block has 8 rows of a tile that is shared.
template <class T>
__global__ void __launch_bounds__(kPanel) AddPieces(const __grid_constant__ ScaledProduct<T> p) {
  WaitForPreviousKernel();
  const ProductWork& work = p.work;
  const int shared_tile = blockIdx.x / (kProductRows / 8);
  const int tile = work.whole + shared_tile;
  const int first_row = blockIdx.x % (kProductRows / 8) * 8;
  const int64_t row = int64_t{p.order.Row(tile)} * kProductRows + first_row;
  const int64_t column = int64_t{p.order.Column(tile)} * kPanel + threadIdx.x;
  const int first = work.FirstSharer(shared_tile);
  const int64_t end = (int64_t{shared_tile} + 1) * work.slabs;
  // Then it was a whole tile to its block.
  if (work.Begin(first) <= end - work.slabs && work.Begin(first + 1) >= end) return;
  float sums[8] = {};
  for (int sharer = first; sharer < work.sharers && work.Begin(sharer) < end; ++sharer) {
    const float* from =
        p.waiting + (int64_t{work.Slot(sharer, shared_tile)} * kProductRows + first_row) * kPanel;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] += from[i * kPanel + threadIdx.x];
  }
  if (column >= p.columns) return;
  const auto& rows = p.rows[row >= p.split ? 1 : 0];
  const float bias = p.bias_of_pieces == nullptr ? 0.0f : p.bias_of_pieces[column];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (row + i >= rows.end) break;
    float* at = rows.c + rows.runs.At(rows.first + row + i) * rows.stride + column;
    *at = (p.adds_pieces ? *at : bias) + sums[i];
  }
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_SCALED_TILES_CUH_
