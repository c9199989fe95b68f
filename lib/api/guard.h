// What the functions of the C ABI share.
#pragma once

#include <exception>
#include <new>
#include <tuple>

#include "haste/c_api.h"
#include "lib/api/known.h"
#include "lib/api/validate.h"
#include "lib/cpu/cpu.h"
#include "lib/engine/cuda_backend.h"
#include "lib/engine/engine.h"

namespace haste {

// After CheckDevice has accepted it.
inline const DeviceOps& OpsOf(int32_t device) {
  return device == HASTE_CUDA ? Cuda().ops : CpuOps();
}

// `to`, if given, = `from`, or 0 if that is NULL.
inline int32_t Copy(int32_t device, size_t bytes, const void* from, void* to,
                    const HasteExecutor& executor, HasteStatus* status) {
  if (to == nullptr || bytes == 0) return HASTE_OK;
  return OpsOf(device).copy(to, from, bytes, executor, status);
}

// Runs a function of the C ABI; exceptions end here.
template <class Call>
int32_t Guarded(HasteStatus* status, const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return SetStatus(status, HASTE_INTERNAL, "out of memory on the host");
  } catch (const std::exception& error) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure: %s", error.what());
  } catch (...) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure of an unknown kind");
  }
}

// A T that is not zeroed first, as a tuple would do: copies are a part of every call.
template <class T>
struct Unset {
  Unset() {}
  T value;
};

// As Guarded, with copies of the structures that were given: of this version, and the body's own.
template <class Body, class... T>
int32_t WithKnown(HasteStatus* status, const Body& body, const T*... given) noexcept {
  return Guarded(status, [&]() -> int32_t {
    std::tuple<Unset<T>...> known;
    const auto take_and_run = [&](auto&... to) {
      int32_t code = HASTE_OK;
      const bool taken = (((code = Take(given, &to.value, status)) == HASTE_OK) && ...);
      return taken ? body(to.value...) : code;
    };
    return std::apply(take_and_run, known);
  });
}

}  // namespace haste
