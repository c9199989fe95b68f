// CountClusters (lib/cuda/host/clusters.h): which clusters a GPU, or part of one, can hold, from
// the driver's answers.
#include "lib/cuda/host/clusters.h"

#include <map>

#include "tests/lib/check.h"

namespace haste {
namespace {

// answers: clusters by size; a query of any other size fails.
void Expect(const char* name, int multiprocessors, const std::map<int, int>& answers,
            const std::map<int, int>& expected) {
  int clusters[kMaxCluster + 1];
  std::fill(std::begin(clusters), std::end(clusters), 77);
  int asked = 0;
  CountClusters(
      multiprocessors,
      [&](int size, int* count) {
        ++asked;
        *count = 99;  // a failing call may leave any value
        const auto found = answers.find(size);
        if (found != answers.end()) *count = found->second;
        return found != answers.end();
      },
      clusters);
  EXPECT_TRUE(asked == kMaxCluster - 1, "%s: %d sizes asked for", name, asked);
  for (int size = 0; size <= kMaxCluster; ++size) {
    const auto found = expected.find(size);
    const int want = found == expected.end() ? 0 : found->second;
    EXPECT_TRUE(clusters[size] == want, "%s: %d of size %d, expected %d", name, clusters[size],
                size, want);
  }
}

void ExpectLimited(int most, int multiprocessors, const std::map<int, int>& expected) {
  CudaProperties device;
  device.multiprocessors = 132;
  for (const auto& [size, count] : std::map<int, int>{{2, 66}, {4, 32}, {8, 15}, {16, 7}}) {
    device.clusters[size] = count;
  }
  LimitMultiprocessors(most, &device);
  EXPECT_TRUE(device.multiprocessors == multiprocessors, "%d: %d multiprocessors", most,
              device.multiprocessors);
  for (int size = 0; size <= kMaxCluster; ++size) {
    const auto found = expected.find(size);
    const int want = found == expected.end() ? 0 : found->second;
    EXPECT_TRUE(device.clusters[size] == want, "%d: %d of size %d, expected %d", most,
                device.clusters[size], size, want);
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::Expect("an error for all sizes", 132, {}, {});
  haste::Expect("at most eight blocks", 170, {{2, 85}, {4, 42}, {8, 20}},
                {{2, 85}, {4, 42}, {8, 20}});
  haste::Expect("an error in the middle", 132, {{2, 66}, {4, 30}, {16, 7}},
                {{2, 66}, {4, 30}, {16, 7}});
  haste::Expect("none, and fewer than none", 16, {{2, 8}, {3, 0}, {4, -1}}, {{2, 8}});
  haste::Expect("part of a GPU", 20, {{2, 66}, {8, 15}, {16, 7}}, {{2, 10}, {8, 2}, {16, 1}});
  haste::ExpectLimited(200, 132, {{2, 66}, {4, 32}, {8, 15}, {16, 7}});
  haste::ExpectLimited(132, 132, {{2, 66}, {4, 32}, {8, 15}, {16, 7}});
  haste::ExpectLimited(32, 32, {{2, 16}, {4, 7}, {8, 3}});
  haste::ExpectLimited(1, 1, {});
  return haste_test::Report("clusters_test");
}
