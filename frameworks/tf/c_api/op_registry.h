// Registers ops and kernels, and infers shapes, from signatures.
#ifndef HASTE_FRAMEWORKS_TF_C_API_OP_REGISTRY_H_
#define HASTE_FRAMEWORKS_TF_C_API_OP_REGISTRY_H_

#include <string>
#include <vector>

#include "frameworks/ops/signature.h"
#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"

namespace haste {
namespace tf {

// Infers the outputs' shapes from the inputs'. Optional outputs keep an unknown shape: an attribute
// decides whether they are empty, and the C API gives a shape function no attributes.
void InferShapes(const Signature& signature, Sizes sizes, TF_ShapeInferenceContext* context,
                 TF_Status* status);

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// attributes: those besides T, the dtype.
void RegisterOp(const Signature& signature, const std::vector<const char*>& attributes,
                ShapeFunction shapes);

// A kernel's three functions, as TF_NewKernelBuilder takes them.
struct KernelFunctions {
  void* (*create)(TF_OpKernelConstruction*);
  void (*compute)(void*, TF_OpKernelContext*);
  void (*destroy)(void*);
};

// For every dtype, on a device that TensorFlow calls "CPU", "GPU" or "XLA_CPU_JIT" say.
void RegisterKernel(const std::string& op, const char* device, const KernelFunctions& functions);
inline void RegisterKernel(const std::string& op, HasteDevice device,
                           const KernelFunctions& functions) {
  RegisterKernel(op, device == HASTE_CUDA ? "GPU" : "CPU", functions);
}

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_OP_REGISTRY_H_
