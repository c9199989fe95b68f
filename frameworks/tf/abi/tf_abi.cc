#include "frameworks/tf/abi/tf_abi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>

// Defined where TensorFlow is linked into the same program (:haste_ops_serving); null elsewhere.
extern "C" __attribute__((weak)) const char* haste_tf_linked_version(void);

namespace haste {
namespace tf {
namespace {

constexpr TfAbi kRows[] = {
#define HASTE_TF_ABI_ROW(version, ...) {version, __VA_ARGS__},
#include "frameworks/tf/abi/rows.inc"
#undef HASTE_TF_ABI_ROW
};
constexpr size_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);

// "2.21.0", or "" in a program that hides it.
std::string TensorFlowVersion() {
  if (haste_tf_linked_version != nullptr) return haste_tf_linked_version();
  auto version = reinterpret_cast<const char* (*)()>(TensorFlowSymbol("TF_Version"));
  return version == nullptr ? "" : version();
}

std::string KnownVersions() {
  std::string all;
  for (size_t i = 0; i < kRowCount; ++i) {
    if (i > 0) all += i + 1 < kRowCount ? ", " : " and ";
    all += kRows[i].version;
  }
  return all;
}

struct Running {
  const TfAbi* abi;
  std::string error;
};

Running Find() {
  const char* named = getenv("HASTE_TF_ABI");
  const bool by_name = named != nullptr && named[0] != '\0';
  const std::string version = by_name ? named : TensorFlowVersion();
  if (const TfAbi* abi = FindAbi(version)) return {abi, ""};
  if (by_name) {
    return {nullptr, "HASTE_TF_ABI must be a TensorFlow version that haste_keras knows, one of " +
                         KnownVersions() + ", but is " + version};
  }
  if (version.empty()) {
    return {nullptr,
            "haste_keras cannot tell which TensorFlow this program has; set HASTE_TF_ABI to its "
            "version, one of " +
                KnownVersions()};
  }
  return {nullptr, "haste_keras does not know the C++ ABI of TensorFlow " + version +
                       ", only that of " + KnownVersions() + "; `tools/tf_abi.py add " + version +
                       "` in its source tree, built anew, adds it"};
}

const Running& Get() {
  static const Running* const running = new Running(Find());  // outlives TensorFlow's threads
  return *running;
}

}  // namespace

void* TensorFlowSymbol(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  for (const char* library : {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* symbol = dlsym(handle, name);
    dlclose(handle);
    if (symbol != nullptr) return symbol;
  }
  return nullptr;
}

const TfAbi* FindAbi(const std::string& version) {
  for (const TfAbi& row : kRows) {
    const size_t length = strlen(row.version);
    const bool same = version.compare(0, length, row.version) == 0;
    if (same && (version.size() == length || version[length] == '.')) return &row;
  }
  return nullptr;
}

const TfAbi* RunningAbi() { return Get().abi; }

const std::string& AbiError() { return Get().error; }

bool FirstToSay() {
  static std::atomic<bool> said{false};
  return !said.exchange(true);
}

void CopyText(const std::string& text, char* buffer, size_t capacity) {
  if (capacity == 0) return;
  const size_t length = std::min(text.size(), capacity - 1);
  memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
}

}  // namespace tf
}  // namespace haste

int32_t haste_tf_abi(char* text, size_t capacity) {
  using namespace haste::tf;
  const TfAbi* abi = RunningAbi();
  CopyText(abi == nullptr ? AbiError() : abi->version, text, capacity);
  if (abi == nullptr) FirstToSay();
  return abi != nullptr;
}
