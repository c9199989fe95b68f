// Host code of the `blas` engine: a step's products by cuBLAS, each followed by one launch. Where
// the same steps recur, they are recorded as a CUDA graph.
#pragma once

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
struct BlasEpilogue : NoEnds<typename Phase::Params> {
  using Params = typename Phase::Params;

  static void TakeSums(const HasteRnnConfig&, Workspace* workspace, Params* p) {
    const int64_t columns = p->tiling.columns;
    p->sums_row = columns;
    p->sums_stride = p->N * columns;
    p->sums = workspace->Take<typename Params::C>(p->K * p->tiling.splits * p->sums_stride);
  }
  static constexpr auto kKernel = BlasElements<Phase>;
  static LaunchShape ShapeOf(const Params& p) {
    return {p.N * p.K * CeilDiv(p.H, kBlasThreads), kBlasThreads};
  }
};

// The products of a phase, and what follows them.
template <class Phase>
class BlasStage {
  using Params = typename Phase::Params;
  using T = typename Params::Storage;
  using Epilogue = BlasEpilogue<Phase>;

 public:
  explicit BlasStage(const Params& p) : p_(p), kernel_(Epilogue::kKernel) {}

  int32_t Set(const CudaProperties& device, HasteStatus* status) {
    return kernel_.Set(Epilogue::ShapeOf(p_), device, status);
  }

  int32_t Run(const CublasCall& cublas, bool allow_tf32, bool multiplies, const WalkStep& step,
              const HasteExecutor& executor, HasteStatus* status) const {
    for (int part = 0; multiplies && part < Params::kTerms; ++part) {
      HASTE_TRY(cublas.Multiply(Product(part, allow_tf32), status));
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
    product.columns = t.columns;  // padded, as these are faster to write
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

// The EnginePolicy for WalkEngine.
template <class D>
class BlasPolicy {
  using First = typename D::First;
  static constexpr int kLast = D::kPhases - 1;

 public:
  using Direction = D;

  BlasPolicy(const HasteRnnConfig& config, const PlannedRnn& planned)
      : config_(config), planned_(planned) {}

  template <class Phase, class Params>
  auto FillPhase(Phase*, int i, Workspace* workspace, Params* p) {
    using T = typename Params::Storage;
    const BlasTiling& tiling = p->tiling = planned_.plan.blas[i];
    const int64_t splits = p->K * tiling.splits;
    p->kernel = workspace->Take<T>(splits * tiling.columns * tiling.depth);
    p->operand.splits = tiling.splits;
    p->operand.depth = static_cast<uint32_t>(tiling.depth);
    p->operand.part = splits * p->N * tiling.depth;
    p->operand.a = workspace->Take<T>(Params::kTerms * p->operand.part);
    BlasEpilogue<Phase>::TakeSums(config_, workspace, p);
    if (i == kLast) of_cublas_ = workspace->Take<char>(kCublasWorkspace);
    return p->operand;
  }

  template <class Phase, class Params>
  int32_t PreparePhase(Phase*, const Params& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) const {
    using T = typename Params::Storage;
    const BlasTiling& t = p.tiling;
    const int64_t tiles =
        p.K * t.splits * CeilDiv(t.depth, kPackTile) * CeilDiv(t.columns, kPackTile);
    HASTE_CUDA_TRY(
        Launch(PackBlas<Phase>, {std::min<int64_t>(tiles, 1 << 16), kPackTile * kPackRows},
               executor, t, p.K, p.H, static_cast<const T*>(r), const_cast<T*>(p.kernel)),
        status);
    const size_t bytes = Params::kTerms * p.operand.part * sizeof(T);
    HASTE_CUDA_TRY(Clear(p.operand.a, bytes, executor), status);
    return BlasEpilogue<Phase>::Begin(config_, p, executor, status);
  }

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    BlasStage<First> one(phased.of[0]);
    BlasStage<typename D::Second> two(phased.of[kLast]);
    HASTE_TRY(one.Set(planned_.cuda, status));
    if (kLast > 0) HASTE_TRY(two.Set(planned_.cuda, status));
    const bool tf32 = config_.allow_tf32 != 0;
    const auto launch = [&](const WalkStep& from, int64_t count, const HasteExecutor& on,
                            HasteStatus* said) -> int32_t {
      CublasCall cublas;
      HASTE_TRY(cublas.Begin(on, of_cublas_, kCublasWorkspace, said));
      return ForEachStep<D>(from, count, [&](int i, const WalkStep& step, bool) {
        return i == 0 ? one.Run(cublas, tf32, Multiplies<First>(phased.of[0], step), step, on, said)
                      : two.Run(cublas, tf32, true, step, on, said);
      });
    };
    const std::string key = Recorded::BytesOf(BlasEpilogue<First>::kKernel) +
                            Recorded::BytesOf(tf32) + Recorded::BytesOf(of_cublas_);
    HASTE_TRY(WalkRecorded(phased, first, steps, key, launch, executor, status));
    return ForEachPhase<D>([&](auto* phase, int i) {
      using Phase = std::remove_pointer_t<decltype(phase)>;
      return BlasEpilogue<Phase>::End(config_, phased.of[i], executor, status);
    });
  }

 private:
  const HasteRnnConfig& config_;
  const PlannedRnn& planned_;
  char* of_cublas_ = nullptr;
};

}  // namespace haste
