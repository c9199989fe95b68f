// Products of any strides, for callers that have no linear algebra of their own. They accumulate in
// Compute<T>, always in the same order. Large products go to cuBLAS if it is found and supports
// their strides, perhaps as padded copies (padded.h); its order is fixed while no other stream is
// at work. Large products of floats are our own (split_fp16.cu.cc), as are parts that are summed in
// float32.
#include "lib/cuda/gemm/gemm.h"

#include <algorithm>
#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/base/math.h"
#include "lib/cuda/gemm/padded.h"
#include "lib/cuda/gemm/split_fp16.h"
#include "lib/cuda/host/cublas.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/engine/engine.h"

namespace haste {
namespace {

constexpr int kThreads = 256;
constexpr int kDepth = 16;  // of a K-block in shared memory

// A thread's part of the chunks of one operand: a tile of kTile outer indices × kDepth. Threads
// run along whichever of the two is contiguous in memory.
template <class T, int kTile>
class ChunkLoader {
  using C = Compute<T>;
  static constexpr int kLoads = kTile * kDepth / kThreads;

 public:
  static constexpr int kStride = kTile + 4;  // of a depth in shared memory, elements

  __device__ ChunkLoader(const void* from, int64_t outer_stride, int64_t depth_stride,
                         int64_t first, int64_t outer_size, int64_t depth)
      : left_(depth) {
    const bool along_depth = depth_stride == 1 && outer_stride != 1;
    outer_ = along_depth ? threadIdx.x / kDepth : threadIdx.x % kTile;
    depth_ = along_depth ? threadIdx.x % kDepth : threadIdx.x / kTile;
    outer_step_ = along_depth ? kThreads / kDepth : 0;
    depth_step_ = along_depth ? 0 : kThreads / kTile;
    outer_left_ = outer_size - first;
    from_ = static_cast<const T*>(from) + (first + outer_) * outer_stride + depth_ * depth_stride;
    step_ = outer_step_ * outer_stride + depth_step_ * depth_stride;
    advance_ = kDepth * depth_stride;
  }

  // Loads the next chunk to registers; 0 beyond the operand's end.
  __device__ void Load() {
    HASTE_UNROLL for (int i = 0; i < kLoads; ++i) {
      const bool inside =
          outer_ + i * outer_step_ < outer_left_ && depth_ + i * depth_step_ < left_;
      values_[i] = inside ? ToCompute(from_[i * step_]) : C(0);
    }
    from_ += advance_;
    left_ -= kDepth;
  }

  // Stores what Load read, as [kDepth, kStride].
  __device__ void Store(C* chunk) const {
    HASTE_UNROLL for (int i = 0; i < kLoads; ++i) {
      chunk[(depth_ + i * depth_step_) * kStride + outer_ + i * outer_step_] = values_[i];
    }
  }

 private:
  const T* from_;
  int64_t step_, advance_, outer_left_, left_;
  int outer_, depth_, outer_step_, depth_step_;
  C values_[kLoads];
};

// A block owns kTile × kTile of c; a thread kTile/16 × kTile/16 of it, in runs of four.
template <class T, int kTile>
__global__ void __launch_bounds__(kThreads, 2)
    Gemm(const __grid_constant__ HasteGemm g, int64_t column_tiles) {
  using C = Compute<T>;
  using Loader = ChunkLoader<T, kTile>;
  constexpr int kRuns = kTile / 64;
  __shared__ __align__(16) C a_chunks[2][kDepth * Loader::kStride];
  __shared__ __align__(16) C b_chunks[2][kDepth * Loader::kStride];
  const int64_t row0 = blockIdx.x / column_tiles * kTile;
  const int64_t column0 = blockIdx.x % column_tiles * kTile;
  Loader a(g.a, g.a_row, g.a_col, row0, g.m, g.k);
  Loader b(g.b, g.b_col, g.b_row, column0, g.n, g.k);
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;
  C sums[kRuns * 4][kRuns * 4] = {};
  a.Load();
  b.Load();
  int stage = 0;
  for (int64_t done = 0; done < g.k; done += kDepth, stage ^= 1) {
    a.Store(a_chunks[stage]);
    b.Store(b_chunks[stage]);
    __syncthreads();  // one a chunk is enough: the next store goes to the other stage
    a.Load();
    b.Load();
    HASTE_UNROLL for (int d = 0; d < kDepth; ++d) {
      C av[kRuns * 4], bv[kRuns * 4];
      HASTE_UNROLL for (int run = 0; run < kRuns; ++run) {
        const auto a4 = LoadFragment<4>(a_chunks[stage] + d * Loader::kStride + run * 64 + row);
        const auto b4 = LoadFragment<4>(b_chunks[stage] + d * Loader::kStride + run * 64 + column);
        HASTE_UNROLL for (int i = 0; i < 4; ++i) {
          av[run * 4 + i] = a4.v[i];
          bv[run * 4 + i] = b4.v[i];
        }
      }
      HASTE_UNROLL for (int i = 0; i < kRuns * 4; ++i) {
        HASTE_UNROLL for (int j = 0; j < kRuns * 4; ++j) {
          sums[i][j] = MulAdd(av[i], bv[j], sums[i][j]);
        }
      }
    }
  }
  const T* bias = static_cast<const T*>(g.bias);
  T* c = static_cast<T*>(g.c);
  HASTE_UNROLL for (int i = 0; i < kRuns * 4; ++i) {
    const int64_t m = row0 + i / 4 * 64 + row + i % 4;
    if (m >= g.m) continue;
    HASTE_UNROLL for (int j = 0; j < kRuns * 4; ++j) {
      const int64_t n = column0 + j / 4 * 64 + column + j % 4;
      if (n >= g.n) continue;
      const C plus = bias == nullptr ? C(0) : ToCompute(bias[n]);
      c[m * g.c_row + n] = FromCompute<T>(sums[i][j] + plus);
    }
  }
}

template <class T, int kTile>
int32_t LaunchGemm(const HasteGemm& g, const HasteExecutor& executor, HasteStatus* status) {
  const int64_t column_tiles = CeilDiv(g.n, kTile), blocks = CeilDiv(g.m, kTile) * column_tiles;
  HASTE_TRY(CheckBlocks(blocks, "m, n", status));
  return HASTE_CUDA_STATUS(Launch(Gemm<T, kTile>, {blocks, kThreads}, executor, g, column_tiles),
                           status);
}

template <class T>
int32_t TiledGemm(const HasteGemm& g, const HasteExecutor& executor, HasteStatus* status) {
  if constexpr (sizeof(Compute<T>) == 4) {
    CudaProperties device;
    HASTE_TRY(GetCudaProperties(&device, status));
    // Large tiles read less memory; small ones keep more multiprocessors busy.
    if (CeilDiv(g.m, 128) * CeilDiv(g.n, 128) >= device.multiprocessors)
      return LaunchGemm<T, 128>(g, executor, status);
  }
  return LaunchGemm<T, 64>(g, executor, status);
}

// c[row, :] = bias.
template <class T>
__global__ void CopyToRows(int64_t rows, int64_t columns, const T* bias, T* c, int64_t c_row) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t j = threadIdx.x; j < columns; j += kThreads) c[row * c_row + j] = bias[j];
  }
}

int32_t SetRows(const HasteGemm& g, const HasteExecutor& executor, HasteStatus* status) {
  const auto set = [&](auto* bias) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(bias)>>;
    return Launch(CopyToRows<T>, {std::min<int64_t>(g.m, 1 << 16), kThreads}, executor, g.m, g.n,
                  bias, static_cast<T*>(g.c), g.c_row);
  };
  if (g.dtype == HASTE_FLOAT64) {
    HASTE_CUDA_TRY(set(static_cast<const double*>(g.bias)), status);
  } else if (g.dtype == HASTE_FLOAT32) {
    HASTE_CUDA_TRY(set(static_cast<const float*>(g.bias)), status);
  } else {
    HASTE_CUDA_TRY(set(static_cast<const Half*>(g.bias)), status);  // any 16 bits
  }
  return HASTE_OK;
}

// With fewer multiply-adds than this, loading cuBLAS does not pay, unless a few blocks would have
// long sums to compute.
constexpr double kWorthCublas = 1e7;
constexpr int64_t kDeep = 1024;
constexpr int64_t kMostOfCublas = INT32_MAX;

// True if neighbours in a row or in a column are neighbours in memory, and rows or columns do not
// overlap.
bool IsPlain(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return column_stride == 1
             ? row_stride >= columns && row_stride <= kMostOfCublas
             : row_stride == 1 && column_stride >= rows && column_stride <= kMostOfCublas;
}

bool IsForCublas(const HasteGemm& g) {
  const double products =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  return (products >= kWorthCublas || g.k >= kDeep) &&
         std::max({g.m, g.n, g.k, g.c_row}) <= kMostOfCublas && g.c_row >= g.n &&
         IsPlain(g.m, g.k, g.a_row, g.a_col) && IsPlain(g.k, g.n, g.b_row, g.b_col);
}

// Runs of rows become a batch of products.
int32_t GemmByCublas(const ProductChunk& part, const HasteExecutor& executor, HasteStatus* status) {
  const HasteGemm& g = part.gemm;
  const RowRuns& rows = part.rows;
  CublasProduct product = {};
  product.dtype = product.c_dtype = g.dtype;
  product.allow_tf32 = g.allow_tf32 != 0;
  product.adds = part.adds || g.bias != nullptr;
  product.rows = rows.run == 0 ? g.m : rows.run;
  product.batch = g.m / product.rows;
  product.columns = g.n;
  product.depth = g.k;
  product.a = {g.a, g.a_col == 1 ? g.a_row : g.a_col, rows.outer * g.a_row, g.a_col == 1};
  product.b = {g.b, g.b_col == 1 ? g.b_row : g.b_col, 0, g.b_col == 1};
  product.c = g.c;
  product.c_stride = g.c_row;
  product.c_batch_stride = rows.outer * g.c_row;
  CublasCall cublas;
  HASTE_TRY(cublas.Begin(executor, nullptr, 0, status));
  if (g.bias != nullptr) HASTE_TRY(SetRows(g, executor, status));
  return cublas.Multiply(product, status);
}

int32_t GemmByPaddedCublas(const PaddedProduct& padded, const HasteGemm& g, void* workspace,
                           const HasteExecutor& executor, HasteStatus* status) {
  HASTE_TRY(CheckPointer(workspace, "workspace", status));
  ProductChunk part = {};
  HASTE_TRY(padded.Begin(workspace, executor, &part.gemm, status));
  part.adds = g.bias != nullptr;
  if (part.adds) {
    HasteGemm of_bias = g;  // only its columns have one
    of_bias.c = part.gemm.c;
    of_bias.c_row = part.gemm.c_row;
    HASTE_TRY(SetRows(of_bias, executor, status));
  }
  HASTE_TRY(GemmByCublas(part, executor, status));
  return padded.End(part.gemm, executor, status);
}

int32_t PlanHere(const ProductChunk& part, int64_t most, ProductPlan* plan, HasteStatus* status) {
  CudaProperties device;
  HASTE_TRY(GetCudaProperties(&device, status));
  *plan = PlanProduct(part.Whole(), device.sm_major, device.clusters[2], most, part.sums_in_float);
  return HASTE_OK;
}

}  // namespace

int32_t CudaGemmWorkspace(const HasteGemm& g, size_t* bytes, HasteStatus* status) {
  HASTE_TRY(CudaProductChunkWorkspace({g, {}, {}}, 0, bytes, status));
  if (*bytes == 0 && IsForCublas(g)) *bytes = PaddedProduct(g).bytes();
  return HASTE_OK;
}

int32_t CudaGemm(const HasteGemm& g, void* workspace, const HasteExecutor& executor,
                 HasteStatus* status) {
  ProductPlan plan;
  HASTE_TRY(PlanHere({g, {}, {}}, 0, &plan, status));
  if (plan.ours) HASTE_TRY(CheckPointer(workspace, "workspace", status));
  if (!plan.ours && IsForCublas(g) && HaveCublasFor(g.dtype)) {
    const PaddedProduct padded(g);
    if (padded) return GemmByPaddedCublas(padded, g, workspace, executor, status);
  }
  return CudaPlannedGemm(g, plan, workspace, executor, status);
}

int32_t CudaPlannedGemm(const HasteGemm& g, const ProductPlan& plan, void* workspace,
                        const HasteExecutor& executor, HasteStatus* status) {
  const ProductChunk whole = {g, {}, {}};
  if (plan.ours) return ScaledGemm(whole, plan, workspace, executor, status);
  if (IsForCublas(g) && HaveCublasFor(g.dtype)) return GemmByCublas(whole, executor, status);
  return WithDtype(g.dtype, [&](auto of) { return TiledGemm<decltype(of)>(g, executor, status); });
}

int32_t CudaProductChunkWorkspace(const ProductChunk& part, int64_t most, size_t* bytes,
                                  HasteStatus* status) {
  ProductPlan plan;
  HASTE_TRY(PlanHere(part, most, &plan, status));
  *bytes = plan.ours ? ScaledGemmWorkspace(part.gemm, plan) : 0;
  return HASTE_OK;
}

int32_t CudaProductChunk(const ProductChunk& part, int64_t most, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
  ProductPlan plan;
  HASTE_TRY(PlanHere(part, most, &plan, status));
  if (plan.ours) return ScaledGemm(part, plan, workspace, executor, status);
  return GemmByCublas(part, executor, status);
}

}  // namespace haste
