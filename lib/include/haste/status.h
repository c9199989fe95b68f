// The outcome of a call: HASTE_OK, or a code and a sentence that names the argument.
#ifndef HASTE_LIB_HASTE_STATUS_H_
#define HASTE_LIB_HASTE_STATUS_H_

#include <string>

#include "haste/c_api.h"

namespace haste {

class Status {
 public:
  Status() = default;
  explicit Status(const HasteStatus& raw) : code_(raw.code), message_(raw.message) {}

  bool ok() const { return code_ == HASTE_OK; }
  int32_t code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  int32_t code_ = HASTE_OK;
  std::string message_;
};

}  // namespace haste

#endif  // HASTE_LIB_HASTE_STATUS_H_
