#include "lib/base/fork.h"

#include <pthread.h>

#include <atomic>

namespace haste {
namespace {

std::atomic<int> generation{0};

}  // namespace

int ForkGeneration() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;  // fails only without memory
  return generation.load(std::memory_order_relaxed);
}

}  // namespace haste
