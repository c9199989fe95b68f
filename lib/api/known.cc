#include "lib/api/known.h"

#include <algorithm>
#include <cstring>

#include "lib/base/status.h"

namespace haste {
namespace {

// More is no size, but what memory that nobody set holds.
constexpr size_t kMost = 64 << 10;

int32_t CheckSize(const Growth& growth, const void* of_caller, size_t* size, HasteStatus* status) {
  HASTE_TRY(CheckPointer(of_caller, growth.name, status));
  memcpy(size, of_caller, sizeof *size);
  if (*size >= growth.first && *size <= kMost) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "%s.struct_size: expected sizeof(%s), which HASTE_INIT(%s) sets, here %zu, got "
                   "%zu",
                   growth.name, growth.name, growth.name, growth.known, *size);
}

}  // namespace

int32_t Take(const Growth& growth, const void* given, void* to, HasteStatus* status) {
  size_t size;
  HASTE_TRY(CheckSize(growth, given, &size, status));
  const char* const bytes = static_cast<const char*>(given);
  for (size_t i = growth.known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "%s: expected zeros after the %zu bytes that haste " HASTE_VERSION
                     " knows, got a field of a newer version at byte %zu of %zu",
                     growth.name, growth.known, i, size);
  }
  const size_t common = std::min(size, growth.known);
  memcpy(to, given, common);
  memset(static_cast<char*>(to) + common, 0, growth.known - common);
  memcpy(to, &growth.known, sizeof growth.known);
  return HASTE_OK;
}

int32_t Give(const Growth& growth, const void* from, void* wanted, HasteStatus* status) {
  size_t size;
  HASTE_TRY(CheckSize(growth, wanted, &size, status));
  const size_t common = std::min(size, growth.known);
  memcpy(wanted, from, common);
  memset(static_cast<char*>(wanted) + common, 0, size - common);
  memcpy(wanted, &size, sizeof size);
  return HASTE_OK;
}

}  // namespace haste
