// All work that is scheduled runs, whether the pool's threads run, look for work or sleep by then.
#include "lib/cpu/threads/thread_pool.h"

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/lib/check.h"
#include "tests/lib/simd_targets.h"

namespace haste_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

void Count(void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); }

// One caller: a few pieces of work, all of which must have run before the next. The pauses between
// are shorter and longer than threads look for work.
void Rounds(haste::ThreadPool* pool, unsigned seed) {
  std::mt19937 random(seed);
  auto& ran = *new std::atomic<int>(0);  // outlives a round that fails
  int scheduled = 0;
  for (int round = 0; round < 1000; ++round) {
    const int some = 1 + static_cast<int>(random() % 7);
    for (int i = 0; i < some; ++i) pool->Schedule(Count, &ran);
    scheduled += some;
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (ran.load() < scheduled && Clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(ran.load() == scheduled, "round %d: %d of %d have run", round, ran.load(),
                scheduled);
    if (ran.load() != scheduled) return;
    const int pauses[] = {0, 0, 20, 150, 200, 250, 1000};
    std::this_thread::sleep_for(microseconds(pauses[random() % 7]));
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  for (int threads : {1, 2, 5}) {
    auto* pool = new haste::ThreadPool(threads);  // its threads run until the process ends
    for (unsigned callers : {1, 3}) {
      std::vector<std::thread> each;
      for (unsigned i = 0; i < callers; ++i) {
        each.emplace_back(haste_test::Rounds, pool, seed + i);
      }
      for (std::thread& caller : each) caller.join();
    }
  }
  return haste_test::Report("thread_pool_test");
}
