// Runs tests on SIMD targets, each in a process of its own: the library chooses one once.
#ifndef HASTE_TESTS_LIB_SIMD_TARGETS_H_
#define HASTE_TESTS_LIB_SIMD_TARGETS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>

#include "tests/lib/check.h"

namespace haste_test {

// A seed that a run prints, so that it can be repeated.
inline unsigned RandomSeed() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  return seed;
}

// Calls test(target) where the library chooses (target is nullptr), and for each of `targets` with
// it as HASTE_SIMD_TARGET. Returns 0 if no check failed.
template <class Test>
int OnTargets(const char* name, std::initializer_list<const char*> targets, const Test& test) {
  const auto run = [&](const char* target) {
    const pid_t child = fork();
    if (child == 0) {
      if (target != nullptr) setenv("HASTE_SIMD_TARGET", target, 1);
      test(target);
      _exit(Report(target == nullptr ? name : target));
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
  };
  int failed = run(nullptr);
  for (const char* target : targets) failed |= run(target);
  return failed;
}

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_SIMD_TARGETS_H_
