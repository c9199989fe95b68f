// The error messages for drivers that do not fit the toolkit. Needs neither.
#include "lib/cuda/host/driver.h"

#include "tests/lib/check.h"

namespace haste {
namespace {

void Fits() {
  const struct {
    int driver, toolkit;
    bool runs;
  } cases[] = {
      {13000, 13000, true},  {13020, 13000, true},  {13000, 13020, true}, {14000, 13000, true},
      {12080, 13000, false}, {11080, 12000, false}, {0, 12000, false},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(DriverRuns(c.driver, c.toolkit) == c.runs, "driver %d, toolkit %d", c.driver,
                c.toolkit);
  }
}

void Sentences() {
  const std::string old = DriverSentence(12080, 13010);
  for (const char* part :
       {"driver runs CUDA up to 12.8,", "built with CUDA 13.1,", "needs driver 580 or newer",
        "update the driver", "make wheel CUDA_HOME=/path/to/cuda-12"}) {
    EXPECT_TRUE(old.find(part) != std::string::npos, "\"%s\" in \"%s\"", part, old.c_str());
  }
  const std::string none = DriverSentence(0, 13000);
  EXPECT_TRUE(none.find("no NVIDIA driver is loaded") != std::string::npos &&
                  none.find("CUDA 13.0") != std::string::npos,
              "%s", none.c_str());
}

}  // namespace
}  // namespace haste

int main() {
  haste::Fits();
  haste::Sentences();
  return haste_test::Report("driver_test");
}
