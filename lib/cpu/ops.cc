// The CPU's table of operations, and its memory.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "lib/base/status.h"
#include "lib/cpu/cpu.h"

namespace haste {
namespace {

int32_t Allocate(size_t bytes, void** memory, HasteStatus* status) {
  constexpr size_t kAlignment = 64;
  if (bytes <= SIZE_MAX - kAlignment) {  // rounded up, as aligned_alloc wants it
    *memory =
        aligned_alloc(kAlignment, std::max(bytes + kAlignment - 1, kAlignment) & ~(kAlignment - 1));
  }
  if (*memory != nullptr) return HASTE_OK;
  return SetStatus(status, HASTE_INTERNAL, "bytes: no memory for %zu", bytes);
}

int32_t Free(void* memory, HasteStatus*) {
  free(memory);
  return HASTE_OK;
}

int32_t Copy(void* to, const void* from, size_t bytes, const HasteExecutor&, HasteStatus*) {
  from == nullptr ? memset(to, 0, bytes) : memcpy(to, from, bytes);
  return HASTE_OK;
}

int32_t GemmWorkspace(const HasteGemm& gemm, size_t* bytes, HasteStatus*) {
  *bytes = gemm.b_scale == nullptr ? 0 : CpuGemmInt8Workspace(gemm);
  return HASTE_OK;
}

}  // namespace

const DeviceOps& CpuOps() {
  static constexpr DeviceOps ops = {
      Allocate,         Free,          Copy,          GemmWorkspace,
      CpuGemm,          CpuReduceRows, CpuLayerNorm,  CpuLayerNormWorkspace,
      CpuLayerNormGrad, CpuWindows,    CpuWindowsGrad};
  return ops;
}

}  // namespace haste
