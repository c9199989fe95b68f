// The C ABI of the operations around a recurrence: products, layer normalisation, windows.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdint>

#include "lib/api/guard.h"
#include "lib/base/dtypes.h"

namespace haste {
namespace {

// Checks dtype, device and sizes of haste_layer_norm and its gradient.
template <class Norm>
int32_t CheckLayerNorm(const Norm& norm, HasteStatus* status) {
  HASTE_TRY(CheckDtype(norm.dtype, status));
  HASTE_TRY(CheckDevice(norm.device, status));
  if (norm.rows < 0 || norm.lanes < 1 || norm.features < 1) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "rows, lanes, features: expected sizes of at least 0, 1, 1, got %" PRId64
                     ", %" PRId64 ", %" PRId64,
                     norm.rows, norm.lanes, norm.features);
  }
  if (static_cast<double>(norm.rows) * norm.lanes * norm.features * sizeof(double) > kMaxBytes) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "rows, lanes, features: x exceeds 2^60 bytes with %" PRId64 ", %" PRId64
                     ", %" PRId64,
                     norm.rows, norm.lanes, norm.features);
  }
  if (!(norm.epsilon > 0.0f && std::isfinite(norm.epsilon))) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT, "epsilon: expected a positive number, got %g",
                     norm.epsilon);
  }
  return HASTE_OK;
}

// Checks device, dtype and sizes of haste_gemm.
int32_t CheckGemm(const HasteGemm& gemm, HasteStatus* status) {
  HASTE_TRY(CheckDevice(gemm.device, status));
  HASTE_TRY(CheckDtype(gemm.dtype, status));
  if (gemm.m < 0 || gemm.n < 0 || gemm.k < 0) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "m, n, k: expected sizes, got %" PRId64 ", %" PRId64 ", %" PRId64, gemm.m,
                     gemm.n, gemm.k);
  }
  const double m = static_cast<double>(gemm.m), n = static_cast<double>(gemm.n);
  const double k = static_cast<double>(gemm.k);
  if (std::max({m * n, m * k, k * n}) * sizeof(double) > kMaxBytes) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "m, n, k: a matrix exceeds 2^60 bytes with %" PRId64 ", %" PRId64 ", %" PRId64,
                     gemm.m, gemm.n, gemm.k);
  }
  if (gemm.b_scale == nullptr) return HASTE_OK;
  HASTE_TRY(CheckInt8(gemm.dtype, "k", gemm.k, status));
  if (gemm.device != HASTE_CPU) {
    return SetStatus(status, HASTE_UNIMPLEMENTED,
                     "b_scale: an int8 b is multiplied on a CPU alone, got device 1 (CUDA)");
  }
  return HASTE_OK;
}

// Checks dtype, device and sizes of haste_windows and its gradient.
template <class Windows>
int32_t CheckWindows(const Windows& windows, HasteStatus* status) {
  HASTE_TRY(CheckDtype(windows.dtype, status));
  HASTE_TRY(CheckDevice(windows.device, status));
  if (windows.batch < 0 || windows.time < 0 || windows.features < 0 || windows.window < 1) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "batch, time, features, window: expected sizes of at least 0, 0, 0, 1, got "
                     "%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
                     windows.batch, windows.time, windows.features, windows.window);
  }
  const double steps = static_cast<double>(windows.time) + 1;
  if (steps * windows.batch * windows.features * windows.window * sizeof(double) > kMaxBytes) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "batch, time, features, window: `seen` exceeds 2^60 bytes with %" PRId64
                     ", %" PRId64 ", %" PRId64 ", %" PRId64,
                     windows.batch, windows.time, windows.features, windows.window);
  }
  return HASTE_OK;
}

}  // namespace
}  // namespace haste

using haste::CheckPointer;
using haste::OpsOf;

extern "C" {

int32_t haste_allocate(int32_t device, size_t bytes, void** memory, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    *memory = nullptr;
    HASTE_TRY(haste::CheckDevice(device, status));
    return OpsOf(device).allocate(bytes, memory, status);
  });
}

int32_t haste_free(int32_t device, void* memory, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    if (memory == nullptr) return HASTE_OK;
    HASTE_TRY(haste::CheckDevice(device, status));
    return OpsOf(device).free(memory, status);
  });
}

int32_t haste_gemm_workspace_bytes(const HasteGemm* gemm, size_t* bytes, HasteStatus* status) {
  const auto body = [&](auto& gemm) -> int32_t {
    HASTE_TRY(haste::CheckGemm(gemm, status));
    *bytes = 0;
    if (gemm.m == 0 || gemm.n == 0) return HASTE_OK;
    return OpsOf(gemm.device).gemm_workspace(gemm, bytes, status);
  };
  return haste::WithKnown(status, body, gemm);
}

int32_t haste_gemm(const HasteGemm* gemm, void* workspace, const HasteExecutor* executor,
                   HasteStatus* status) {
  const auto body = [&](auto& gemm, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckGemm(gemm, status));
    if (gemm.m == 0 || gemm.n == 0) return HASTE_OK;
    HASTE_TRY(CheckPointer(gemm.c, "c", status));
    if (gemm.k > 0) {
      HASTE_TRY(CheckPointer(gemm.a, "a", status));
      HASTE_TRY(CheckPointer(gemm.b, "b", status));
    }
    return OpsOf(gemm.device).gemm(gemm, workspace, executor, status);
  };
  return haste::WithKnown(status, body, gemm, executor);
}

int32_t haste_layer_norm_workspace_bytes(const HasteLayerNormGrad* norm,
                                         const HasteExecutor* executor, size_t* bytes,
                                         HasteStatus* status) {
  const auto body = [&](auto& norm, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckLayerNorm(norm, status));
    *bytes = norm.rows == 0 ? 0 : OpsOf(norm.device).layer_norm_workspace(norm, executor);
    return HASTE_OK;
  };
  return haste::WithKnown(status, body, norm, executor);
}

int32_t haste_layer_norm(const HasteLayerNorm* norm, const HasteExecutor* executor,
                         HasteStatus* status) {
  const auto body = [&](auto& norm, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckLayerNorm(norm, status));
    if (norm.rows == 0) return HASTE_OK;
    HASTE_TRY(CheckPointer(norm.x, "x", status));
    HASTE_TRY(CheckPointer(norm.gamma, "gamma", status));
    HASTE_TRY(CheckPointer(norm.y, "y", status));
    return OpsOf(norm.device).layer_norm(norm, executor, status);
  };
  return haste::WithKnown(status, body, norm, executor);
}

int32_t haste_layer_norm_grad(const HasteLayerNormGrad* norm, void* workspace,
                              const HasteExecutor* executor, HasteStatus* status) {
  const auto body = [&](auto& norm, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckLayerNorm(norm, status));
    HASTE_TRY(CheckPointer(norm.dgamma, "dgamma", status));
    if (norm.rows == 0) {
      const size_t bytes = norm.lanes * norm.features * haste::DtypeSize(norm.dtype);
      for (void* sum : {norm.dgamma, norm.dbeta}) {
        HASTE_TRY(haste::Copy(norm.device, bytes, nullptr, sum, executor, status));
      }
      return HASTE_OK;
    }
    HASTE_TRY(CheckPointer(norm.x, "x", status));
    HASTE_TRY(CheckPointer(norm.gamma, "gamma", status));
    HASTE_TRY(CheckPointer(norm.dy, "dy", status));
    HASTE_TRY(CheckPointer(norm.dx, "dx", status));
    HASTE_TRY(CheckPointer(workspace, "workspace", status));
    return OpsOf(norm.device).layer_norm_grad(norm, workspace, executor, status);
  };
  return haste::WithKnown(status, body, norm, executor);
}

int32_t haste_windows(const HasteWindows* windows, const HasteExecutor* executor,
                      HasteStatus* status) {
  const auto body = [&](auto& windows, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckWindows(windows, status));
    if (windows.batch == 0 || windows.features == 0) return HASTE_OK;
    if (windows.time > 0) {
      HASTE_TRY(CheckPointer(windows.x, "x", status));
      HASTE_TRY(CheckPointer(windows.seen, "seen", status));
    }
    return OpsOf(windows.device).windows(windows, executor, status);
  };
  return haste::WithKnown(status, body, windows, executor);
}

int32_t haste_windows_grad(const HasteWindowsGrad* windows, const HasteExecutor* executor,
                           HasteStatus* status) {
  const auto body = [&](auto& windows, auto& executor) -> int32_t {
    HASTE_TRY(haste::CheckWindows(windows, status));
    if (windows.batch == 0 || windows.features == 0) return HASTE_OK;
    if (windows.time > 0) HASTE_TRY(CheckPointer(windows.dseen, "dseen", status));
    return OpsOf(windows.device).windows_grad(windows, executor, status);
  };
  return haste::WithKnown(status, body, windows, executor);
}

}  // extern "C"
