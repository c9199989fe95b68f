// Checks that print values on failure and count failures; a test's main returns Failures().
#ifndef HASTE_TESTS_LIB_CHECK_H_
#define HASTE_TESTS_LIB_CHECK_H_

#include <cmath>
#include <cstdio>
#include <string>

namespace haste_test {

inline int& Failures() {
  static int count = 0;
  return count;
}

#define EXPECT_TRUE(CONDITION, ...)                                        \
  do {                                                                     \
    if (!(CONDITION)) {                                                    \
      ++haste_test::Failures();                                            \
      std::printf("%s:%d: expected %s: ", __FILE__, __LINE__, #CONDITION); \
      std::printf(__VA_ARGS__);                                            \
      std::printf("\n");                                                   \
    }                                                                      \
  } while (0)

#define EXPECT_NEAR(GOT, WANT, TOLERANCE, ...)                                               \
  do {                                                                                       \
    const double haste_got = (GOT), haste_want = (WANT);                                     \
    if (!(std::fabs(haste_got - haste_want) <= (TOLERANCE))) {                               \
      ++haste_test::Failures();                                                              \
      std::printf("%s:%d: %s is %.9g, expected %.9g: ", __FILE__, __LINE__, #GOT, haste_got, \
                  haste_want);                                                               \
      std::printf(__VA_ARGS__);                                                              \
      std::printf("\n");                                                                     \
    }                                                                                        \
  } while (0)

inline int Report(const char* name) {
  std::printf("%s: %s\n", name, Failures() == 0 ? "ok" : "FAILED");
  std::fflush(stdout);
  return Failures() == 0 ? 0 : 1;
}

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_CHECK_H_
