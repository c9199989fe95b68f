// Medians of functions that are timed in turns, so that a slow phase of the machine affects them
// all.
#ifndef HASTE_BENCHMARKS_CPP_TIMING_H_
#define HASTE_BENCHMARKS_CPP_TIMING_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace benchmark {

inline double Seconds(const std::function<void()>& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds a call of each function. An untimed call precedes each timed one, so that caches and
// threads are as the function itself leaves them.
inline std::vector<double> Medians(const std::vector<std::function<void()>>& functions,
                                   double seconds) {
  constexpr size_t kLeast = 5;
  std::vector<std::vector<double>> times(functions.size());
  double spent = 0;
  while (spent < seconds || times[0].size() < kLeast) {
    for (size_t i = 0; i < functions.size(); ++i) {
      const double untimed = Seconds(functions[i]);
      times[i].push_back(Seconds(functions[i]));
      spent += untimed + times[i].back();
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& all : times) {
    std::sort(all.begin(), all.end());
    medians.push_back(all[all.size() / 2]);
  }
  return medians;
}

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_TIMING_H_
