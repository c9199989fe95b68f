// The CUDA half's table of functions (lib/engine/cuda_backend.h).
#include "lib/cuda/gemm/gemm.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/overlap/layer.h"
#include "lib/cuda/registry/engines.h"
#include "lib/engine/cuda_backend.h"

namespace haste {
namespace {

// Functions of a CudaCell, which the table names by its index.
template <auto kFunction>
struct OfCell;
template <class First, class... Args, int32_t (*kFunction)(First, const CudaCell&, Args...)>
struct OfCell<kFunction> {
  static int32_t Call(First first, int cell, Args... args) {
    return kFunction(first, CudaCellAt(cell), args...);
  }
};

}  // namespace
}  // namespace haste

extern "C" HASTE_API const haste::CudaBackend* haste_cuda_backend(void) {
  static const haste::CudaBackend backend = {
      HASTE_VERSION,
      sizeof(haste::CudaBackend),
      haste::CudaToolkit(),
      HASTE_CUDA_ARCHITECTURES,
      haste::CudaDriverStatus,
      haste::CudaDeviceStatus,
      haste::GetCudaProperties,
      haste::OfCell<haste::PlanCudaRnn>::Call,
      {haste::CudaAllocate, haste::CudaFree, haste::CudaCopy, haste::CudaGemmWorkspace,
       haste::CudaGemm, haste::CudaReduceRows, haste::CudaLayerNorm, haste::CudaLayerNormWorkspace,
       haste::CudaLayerNormGrad, haste::CudaWindows, haste::CudaWindowsGrad},
      haste::CudaPlannedGemm,
      haste::OfCell<haste::OverlappedInputBytes>::Call,
      haste::OfCell<haste::OverlappedGradientsBytes>::Call,
      haste::OfCell<haste::OverlappedLayerForward>::Call,
      haste::OfCell<haste::OverlappedLayerBackward>::Call,
  };
  return &backend;
}
