// Structures between a caller and a library of different versions, where the C ABI has no older
// version yet to show it with: lib/api/known.h.
#include "lib/api/known.h"

#include <cstring>

#include "haste/rnn.h"
#include "tests/lib/check.h"

namespace haste {
namespace {

// HasteRnnConfig as if it had ended before `activation`, and before `epsilon`, in older versions.
constexpr size_t kFirst = offsetof(HasteRnnConfig, activation);
constexpr size_t kSecond = offsetof(HasteRnnConfig, epsilon);
constexpr Growth kGrown = {"HasteRnnConfig", kFirst, sizeof(HasteRnnConfig)};

// A structure of a caller, between guards.
struct Framed {
  char before[64];
  HasteRnnConfig config;
  char after[64];
};
Framed Filled(char with) {
  Framed result;
  memset(&result, with, sizeof result);
  return result;
}

// An older caller's: fields that it does not have are 0, whatever is in memory there.
void Older() {
  for (const size_t size : {kFirst, kSecond, sizeof(HasteRnnConfig)}) {
    HasteRnnConfig given;
    memset(&given, 0x11, sizeof given);
    given.struct_size = size;
    Framed taken = Filled(0x22);
    HasteStatus status = {};
    EXPECT_TRUE(Take(kGrown, &given, &taken.config, &status) == HASTE_OK, "%s", status.message);
    HasteRnnConfig want = {};
    memcpy(&want, &given, size);
    want.struct_size = sizeof want;
    EXPECT_TRUE(memcmp(&taken.config, &want, sizeof want) == 0, "%zu bytes", size);
    const Framed untouched = Filled(0x22);
    EXPECT_TRUE(memcmp(taken.before, untouched.before, sizeof untouched.before) == 0 &&
                    memcmp(taken.after, untouched.after, sizeof untouched.after) == 0,
                "%zu bytes: written beside the copy", size);
  }
  HasteRnnConfig small = HASTE_INIT(HasteRnnConfig), taken;
  small.struct_size = kFirst - 1;
  EXPECT_TRUE(Take(kGrown, &small, &taken, nullptr) == HASTE_INVALID_ARGUMENT, "below the first");
}

// What the library fills: as much as the caller has room for, and zeros beyond what it knows.
void Filling() {
  HasteRnnConfig from;
  memset(&from, 0x33, sizeof from);
  constexpr size_t kMore = sizeof(Framed::after) / 2;
  for (const size_t size : {kFirst, kSecond, sizeof from, sizeof from + kMore}) {
    Framed wanted = Filled(0x44), want = Filled(0x44);
    wanted.config.struct_size = size;
    HasteStatus status = {};
    EXPECT_TRUE(Give(kGrown, &from, &wanted.config, &status) == HASTE_OK, "%s", status.message);
    memcpy(&want.config, &from, size < sizeof from ? size : sizeof from);
    want.config.struct_size = size;
    if (size > sizeof from) memset(want.after, 0, size - sizeof from);
    EXPECT_TRUE(memcmp(&wanted, &want, sizeof want) == 0, "%zu bytes", size);
  }
  for (const size_t size : {size_t{0}, kFirst - 1, SIZE_MAX}) {
    Framed wanted = Filled(0x44), want = Filled(0x44);
    wanted.config.struct_size = want.config.struct_size = size;
    HasteStatus status = {};
    EXPECT_TRUE(Give(kGrown, &from, &wanted.config, &status) == HASTE_INVALID_ARGUMENT &&
                    strstr(status.message, "HASTE_INIT(HasteRnnConfig)") != nullptr,
                "%zu bytes: %s", size, status.message);
    EXPECT_TRUE(memcmp(&wanted, &want, sizeof want) == 0, "%zu bytes: written", size);
  }
}

// The C++ API sets it.
void Wrappers() {
  EXPECT_TRUE(RnnConfig().struct_size == sizeof(HasteRnnConfig) &&
                  ForwardArgs().struct_size == sizeof(HasteRnnForwardArgs) &&
                  BackwardArgs().struct_size == sizeof(HasteRnnBackwardArgs) &&
                  LayerForwardArgs().struct_size == sizeof(HasteLayerForwardArgs) &&
                  LayerBackwardArgs().struct_size == sizeof(HasteLayerBackwardArgs) &&
                  WindowsArgs().struct_size == sizeof(HasteWindows) &&
                  WindowsGradArgs().struct_size == sizeof(HasteWindowsGrad) &&
                  Executor().struct_size == sizeof(HasteExecutor),
              "structures of haste/args.h");
}

}  // namespace
}  // namespace haste

int main() {
  haste::Older();
  haste::Filling();
  haste::Wrappers();
  return haste_test::Report("known_test");
}
