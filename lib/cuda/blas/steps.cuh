// Host code of the `blas` engine: a step's products by cuBLAS, each followed by one launch. Where
// the same steps recur, they are recorded as a CUDA graph.
#ifndef HASTE_LIB_CUDA_BLAS_STEPS_CUH_
#define HASTE_LIB_CUDA_BLAS_STEPS_CUH_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lib/cuda/blas/kernels.cuh"
#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/graph_driver.cuh"
#include "lib/cuda/host/cublas.h"

namespace haste {

template <class T>
constexpr int32_t kDtype = -1;
#define HASTE_DTYPE_OF(name, type, dtype) \
  template <>                             \
  constexpr int32_t kDtype<type> = dtype;
HASTE_DTYPES(HASTE_DTYPE_OF)
#undef HASTE_DTYPE_OF

// What follows a phase's product: where the sums are, and the kernel that reads them.
template <class Phase>
struct BlasEpilogue {
  using Params = typename Phase::Params;

  static void TakeSums(const HasteRnnConfig&, Workspace* workspace, Params* p) {
    const int64_t columns = p->tiling.columns;
    p->sums_row = columns;
    p->sums_stride = p->N * columns;
    p->sums = workspace->Take<typename Params::C>(p->K * p->tiling.splits * p->sums_stride);
  }
  // Columns of a product: as many as the padded sums have, as these are faster to write.
  static int64_t ColumnsOf(const Params& p) { return p.tiling.columns; }

  static constexpr auto kKernel = BlasElements<Phase>;
  static LaunchShape ShapeOf(const Params& p) {
    LaunchShape shape;
    shape.blocks = p.N * p.K * CeilDiv(p.H, kBlasThreads);
    shape.threads = kBlasThreads;
    return shape;
  }

  // Begin runs before the first step, End after the last.
  static int32_t Begin(const HasteRnnConfig&, const Params&, const HasteExecutor&, HasteStatus*) {
    return HASTE_OK;
  }
  static int32_t End(const HasteRnnConfig&, const Params&, const HasteExecutor&, HasteStatus*) {
    return HASTE_OK;
  }
};

// The products of a phase, and what follows them.
template <class Phase>
class BlasStage {
  using Params = typename Phase::Params;
  using T = typename Params::Storage;
  using Behind = BlasEpilogue<Phase>;

 public:
  explicit BlasStage(const Params& p) : p_(p), kernel_(Behind::kKernel) {}

  static void Fill(const HasteRnnConfig& config, const BlasTiling& tiling, Workspace* workspace,
                   Params* p) {
    const int64_t splits = p->K * tiling.splits;
    p->tiling = tiling;
    p->kernel = workspace->Take<T>(splits * tiling.columns * tiling.depth);
    p->operand.splits = tiling.splits;
    p->operand.depth = static_cast<uint32_t>(tiling.depth);
    p->operand.part = splits * p->N * tiling.depth;
    p->operand.a = workspace->Take<T>(Params::kTerms * p->operand.part);
    Behind::TakeSums(config, workspace, p);
  }

  int32_t Prepare(const HasteRnnConfig& config, const void* r, const HasteExecutor& executor,
                  HasteStatus* status) const {
    const BlasTiling& t = p_.tiling;
    const int64_t tiles =
        p_.K * t.splits * CeilDiv(t.depth, kPackTile) * CeilDiv(t.columns, kPackTile);
    HASTE_CUDA_TRY(
        Launch(PackBlas<Phase>, std::min<int64_t>(tiles, 1 << 16), kPackTile * kPackRows, 0, false,
               executor, t, p_.K, p_.H, static_cast<const T*>(r), const_cast<T*>(p_.kernel)),
        status);
    HASTE_CUDA_TRY(cudaMemsetAsync(p_.operand.a, 0, Params::kTerms * p_.operand.part * sizeof(T),
                                   static_cast<cudaStream_t>(executor.stream)),
                   status);
    return Behind::Begin(config, p_, executor, status);
  }

  int32_t Set(const HasteRnnConfig& config, const CudaProperties& device, HasteStatus* status) {
    return kernel_.Set(Behind::ShapeOf(p_), config, device, status);
  }

  int32_t Run(const CublasCall& cublas, bool allow_tf32, bool multiplies, const WalkStep& step,
              const HasteExecutor& executor, HasteStatus* status) const {
    for (int part = 0; multiplies && part < Params::kTerms; ++part) {
      const int32_t code = cublas.Multiply(Product(part, allow_tf32), status);
      if (code != HASTE_OK) return code;
    }
    return kernel_.Run(multiplies, executor, status, p_, step);
  }

 private:
  CublasProduct Product(int part, bool allow_tf32) const {
    const BlasTiling& t = p_.tiling;
    CublasProduct product = {};
    product.dtype = kDtype<T>;
    product.c_dtype = kDtype<Compute<T>>;
    product.allow_tf32 = allow_tf32;
    product.adds = part > 0;
    product.rows = p_.N;
    product.columns = Behind::ColumnsOf(p_);
    product.depth = t.depth;
    product.batch = p_.K * t.splits;
    product.a = {p_.operand.a + part * p_.operand.part, t.depth, p_.N * t.depth, true};
    product.b = {p_.kernel, t.depth, t.columns * t.depth, false};
    product.c = p_.sums;
    product.c_stride = p_.sums_row;
    product.c_batch_stride = p_.sums_stride;
    return product;
  }

  const Params& p_;
  StepKernel<const Params, const WalkStep> kernel_;
};

// The launches of a step.
template <class Direction>
class BlasSteps {
  using First = typename Direction::First;
  static constexpr int kLast = Direction::kPhases - 1;

 public:
  BlasSteps(const HasteRnnConfig& config, const Phased<Direction>& phased, void* of_cublas)
      : config_(config),
        phased_(phased),
        of_cublas_(of_cublas),
        one_(phased.of[0]),
        two_(phased.of[kLast]) {}

  int32_t Set(const CudaProperties& device, HasteStatus* status) {
    const int32_t code = one_.Set(config_, device, status);
    return code != HASTE_OK || kLast == 0 ? code : two_.Set(config_, device, status);
  }

  // Recorded steps (from.first) are in the middle of a walk.
  int32_t Launch(const WalkStep& from, int64_t count, const HasteExecutor& executor,
                 HasteStatus* status) const {
    const bool tf32 = config_.allow_tf32 != 0, midst = from.first != nullptr;
    CublasCall cublas;
    int32_t code = cublas.Begin(executor, of_cublas_, kCublasWorkspace, status);
    for (int64_t done = 0; code == HASTE_OK && done < count; ++done) {
      const WalkStep step = from.After(done * First::kStride);
      const bool multiplies = midst || First::HasProduct(phased_.of[0], step.step);
      code = one_.Run(cublas, tf32, multiplies, step, executor, status);
      if (code == HASTE_OK && kLast > 0 && (midst || step.step >= 0)) {
        code = two_.Run(cublas, tf32, true, step, executor, status);
      }
    }
    return code;
  }

  std::string Key() const {
    std::string key = Recorded::BytesOf(BlasEpilogue<First>::kKernel) +
                      Recorded::BytesOf(config_.allow_tf32) + Recorded::BytesOf(of_cublas_);
    for (const auto& p : phased_.of) key += Recorded::BytesOf(p);
    return key;
  }

 private:
  const HasteRnnConfig& config_;
  const Phased<Direction>& phased_;
  void* const of_cublas_;
  BlasStage<First> one_;
  BlasStage<typename Direction::Second> two_;
};

// The EnginePolicy for WalkEngine.
template <class Cell, class D>
class BlasPolicy {
 public:
  using Direction = D;

  BlasPolicy(const HasteRnnConfig& config, const Plan& plan) : config_(config), plan_(plan) {}

  void Fill(Workspace* workspace, Phased<Direction>* phased) {
    FillPhases<Cell>(config_, workspace, phased, [&](auto* phase, int i) {
      using Phase = std::remove_pointer_t<decltype(phase)>;
      BlasStage<Phase>::Fill(config_, plan_.blas[i], workspace, &phased->of[i]);
    });
    of_cublas_ = workspace->Take<char>(kCublasWorkspace);
  }

  int32_t Prepare(const Phased<Direction>& phased, const void* r, const HasteExecutor& executor,
                  HasteStatus* status) const {
    return ForEachPhase<Direction>([&](auto* phase, int i) {
      using Phase = std::remove_pointer_t<decltype(phase)>;
      return BlasStage<Phase>(phased.of[i]).Prepare(config_, r, executor, status);
    });
  }

  int32_t Walk(const Phased<Direction>& phased, int64_t first, int64_t steps,
               const CudaProperties& device, const HasteExecutor& executor,
               HasteStatus* status) const {
    BlasSteps<Direction> walk(config_, phased, of_cublas_);
    int32_t code = walk.Set(device, status);
    if (code != HASTE_OK) return code;
    const StepRange span = StepRangeOf<typename Direction::First>(phased.of[0], first, steps);
    const auto launch = [&](const auto&... given) { return walk.Launch(given...); };
    code = WalkRecorded(span, walk.Key(), phased.of[0].recorded_at, launch, executor, status);
    if (code != HASTE_OK) return code;
    return ForEachPhase<Direction>([&](auto* phase, int i) {
      using Phase = std::remove_pointer_t<decltype(phase)>;
      return BlasEpilogue<Phase>::End(config_, phased.of[i], executor, status);
    });
  }

 private:
  const HasteRnnConfig& config_;
  const Plan& plan_;
  char* of_cublas_ = nullptr;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_BLAS_STEPS_CUH_
