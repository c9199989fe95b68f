// What one run of an op has in every framework: the op's signature, the sizes that its inputs give,
// and where the work runs.
#ifndef HASTE_FRAMEWORKS_OPS_CALL_H_
#define HASTE_FRAMEWORKS_OPS_CALL_H_

#include <stddef.h>
#include <stdint.h>

#include <utility>

#include "frameworks/ops/signature.h"
#include "haste/c_api.h"

namespace haste {

// Derived has ok(), Report(error) and Scratch(bytes).
template <class Derived>
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  int64_t Size(char letter) const { return sizes_[letter]; }
  const HasteExecutor& executor() const { return executor_; }

  // Scratch memory. ask(&bytes, &error), a function of the C ABI, gives its size. nullptr after an
  // error.
  template <class Ask>
  void* Workspace(const Ask& ask) {
    Derived& call = static_cast<Derived&>(*this);
    if (!call.ok()) return nullptr;
    size_t bytes = 0;
    HasteStatus error = {};
    if (ask(&bytes, &error) == HASTE_OK) return call.Scratch(bytes);
    call.Report(error);
    return nullptr;
  }

 protected:
  // `signature` must outlive the call.
  Call(const Signature& signature, HasteDevice device, Sizes sizes)
      : signature_(signature), device_(device), sizes_(std::move(sizes)) {}
  ~Call() = default;

  const Signature& signature_;
  const HasteDevice device_;
  Sizes sizes_;
  HasteExecutor executor_ = HASTE_INIT(HasteExecutor);
};

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_CALL_H_
