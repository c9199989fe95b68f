#include "benchmarks/cpp/planner/plan_problems.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "lib/cells/cells.h"

namespace benchmark {
namespace {

// Cuts of an engine that take longer than its best, and engines that take longer than the best of
// all, by estimate: never taken, and slow to time.
constexpr double kWorthTiming = 2.5, kEngineWorthTiming = 8, kMostClocks = 1e6;
// Of a pinned problem: what may be the best.
constexpr double kMayBeBest = 1.5, kEngineMayBeBest = 1.8;

// Problems whose plans tests pin (tests/lib/plan/plan_*_test.cc).
struct Pinned {
  const char *cell, *dtype;
  int64_t batch, lanes, hidden;
};
constexpr Pinned kPinned[] = {
    {"lstm", "bf16", 8, 1, 250},
    {"lstm", "bf16", 16, 1, 768},
    {"lstm", "f32", 16, 1, 768},
    {"lstm", "bf16", 16, 1, 512},
    {"lstm", "bf16", 16, 2, 768},
    {"lstm", "bf16", 16, 6, 126},
    {"lstm", "bf16", 32, 1, 2048},
    {"lstm", "bf16", 32, 1, 768},
    {"lstm", "bf16", 64, 1, 1024},
    {"lstm", "tf32", 32, 1, 768},
    {"lstm", "f32", 32, 1, 768},
    {"lstm", "bf16", 64, 1, 512},
    {"lstm", "tf32", 32, 1, 1536},
    {"lstm", "bf16", 1, 1, 1024},
    {"lstm", "bf16", 32, 1, 1536},
    {"lstm", "bf16", 1, 1, 2048},
    {"lstm", "f32", 16, 1, 512},
    {"lstm", "bf16", 16, 12, 64},
    {"lstm", "bf16", 1024, 1, 64},
    {"gru", "bf16", 16, 1, 96},
    {"slstm", "bf16", 16, 1, 40},
    {"elman", "bf16", 16, 1, 96},
    {"lstm", "f32", 16, 1, 64},
    {"lstm", "bf16", 8, 1, 256},
    {"gru", "bf16", 64, 1, 256},
    {"lstm", "bf16", 16, 1, 104},
    {"lstm", "bf16", 32, 1, 512},
    {"lstm", "bf16", 16, 1, 520},
    {"lstm", "f32", 16, 1, 72},
    {"lstm", "f32", 16, 1, 128},
    {"lstm", "f32", 16, 1, 256},
    {"elman", "f32", 16, 1, 200},
    {"lstm", "f32", 16, 1, 1024},
    {"lstm", "tf32", 16, 1, 1024},
    {"lstm", "tf32", 16, 1, 320},
    {"lstm", "f32", 16, 1, 320},
    {"lstm", "f32", 16, 1, 1536},
    {"lstm", "tf32", 16, 1, 1536},
    {"lstm", "bf16", 128, 1, 2048},
    {"lstm", "f32", 128, 1, 2048},
    {"lstm", "f32", 16, 1, 2048},
    {"lstm", "f32", 64, 1, 1536},
    {"gru", "f32", 32, 1, 1000},
    {"lstm", "f32", 1, 1, 2048},
    {"lstm", "bf16", 64, 1, 1536},
    {"gru", "bf16", 128, 1, 2048},
    {"elman", "bf16", 128, 1, 2048},
    {"slstm", "bf16", 128, 1, 2048},
    {"gru_reset_before", "bf16", 64, 1, 1024},
    {"lstm", "bf16", 128, 4, 1024},
    {"lstm", "tf32", 128, 1, 2048},
    {"lstm", "tf32", 64, 1, 2048},
    {"lstm", "f64", 32, 1, 1024},
    {"lstm", "f64", 1, 1, 256},
    {"gru", "bf16", 32, 1, 1536},
    {"gru", "bf16", 64, 1, 1536},
    {"lstm", "bf16", 60, 1, 60},
    {"lstm", "f32", 1, 1, 14},
    {"elman", "f32", 32, 1, 300},
};
Problem DrawnProblem(Draws* draws) {
  static constexpr const char* kCells[] = {"lstm",
                                           "lstm",
                                           "lstm",
                                           "gru",
                                           "gru",
                                           "gru",
                                           "elman",
                                           "slstm",
                                           "elman",
                                           "gru_reset_before",
                                           "layer_norm_lstm"};
  static constexpr const char* kDtypes[] = {"f32",  "f32",  "f32",  "tf32", "tf32",
                                            "bf16", "bf16", "bf16", "bf16", "f64"};
  static constexpr int64_t kBatches[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  static constexpr int64_t kHidden[] = {16,  32,  50,  64,  96,  128, 160,  200,  256,  300, 320,
                                        384, 448, 512, 640, 768, 900, 1024, 1280, 1536, 2048};
  static constexpr int64_t kLanes[] = {1, 1, 1, 1, 1, 1, 2, 4};
  Problem problem;
  problem.cell = draws->Of(kCells);
  problem.dtype = draws->Of(kDtypes);
  problem.batch = draws->Of(kBatches);
  problem.lanes = draws->Of(kLanes);
  problem.hidden = draws->Of(kHidden);
  problem.backward = draws->Of({false, true});
  return problem;
}

constexpr int kPlaces[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

// The cuts of each engine, the best first.
std::vector<std::vector<Cut>> CutsByEngine(const Problem& problem,
                                           const haste::CudaProperties& cuda) {
  std::vector<std::vector<Cut>> engines;
  VisitRows(problem, cuda, haste::CostsOf(cuda.sm_major, cuda.sm_minor), [&](const Cut& cut) {
    if (engines.empty() || engines.back()[0].engine != cut.engine) engines.emplace_back();
    engines.back().push_back(cut);
  });
  for (std::vector<Cut>& cuts : engines) {
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& a, const Cut& b) { return a.clocks < b.clocks; });
  }
  return engines;
}

}  // namespace

bool Problems::Next(Problem* problem) {
  constexpr size_t kBoth = 2 * std::size(kPinned);
  do {
    if (next_ < kBoth) {
      const Pinned& p = kPinned[next_ / 2];
      *problem = {p.cell, p.dtype, p.batch, p.lanes, p.hidden, next_ % 2 == 1};
    } else {
      *problem = DrawnProblem(&draws_);
    }
    pinned_ = next_ < kBoth;
    if (++next_ > kMostProblems) return false;
  } while (!seen_.insert(*problem).second);
  return true;
}

std::vector<Cut> Problems::CutsOf(const Problem& problem, const haste::CudaProperties& cuda) {
  std::vector<std::vector<Cut>> engines = CutsByEngine(problem, cuda);
  double least = kMostClocks;
  for (const std::vector<Cut>& cuts : engines) least = std::min(least, cuts[0].clocks);
  std::vector<Cut> taken;
  for (std::vector<Cut>& cuts : engines) {
    const double best = cuts[0].clocks;
    if (best > (pinned_ ? kEngineMayBeBest : kEngineWorthTiming) * least) continue;
    taken.push_back(cuts[0]);
    const double most = pinned_ ? std::max(kMayBeBest * least, best) : kWorthTiming * best;
    while (cuts.size() > 1 && cuts.back().clocks > most) cuts.pop_back();
    cuts.erase(cuts.begin());
    size_t others = pinned_ ? 12 : cuts.size() < 4 ? 2 : 4;
    for (; others > 0 && !cuts.empty(); --others) {
      const size_t at = pinned_ ? 0 : draws_.Of(kPlaces) * cuts.size() / 11;
      taken.push_back(cuts[at]);
      cuts.erase(cuts.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  if (std::any_of(taken.begin(), taken.end(),
                  [](const Cut& cut) { return cut.engine == "stepwise"; })) {
    std::vector<Cut> cuts;
    VisitStepwiseCuts(problem, cuda, [&](const Cut& cut) { cuts.push_back(cut); });
    taken.push_back(cuts[0]);
    if (cuts.size() > 1) taken.push_back(cuts[1 + draws_.Of(kPlaces) * (cuts.size() - 1) / 11]);
  }
  return taken;
}

bool StationaryProblems::Next(Problem* problem) {
#define HASTE_NAME(CELL) haste::CELL::kName,
  static constexpr const char* kCells[] = {HASTE_MATRIX_CELLS(HASTE_NAME)};
  static constexpr const char* kNormalizing[] = {HASTE_NORM_CELLS(HASTE_NAME)};
  static constexpr const char* kAll[] = {HASTE_MATRIX_CELLS(HASTE_NAME)
                                             HASTE_NORM_CELLS(HASTE_NAME)};
#undef HASTE_NAME
  static constexpr const char* kDtypes[] = {"bf16", "bf16", "bf16", "bf16", "bf16",
                                            "bf16", "bf16", "bf16", "f16"};
  static constexpr int64_t kBatches[] = {32, 64, 96, 128, 256};
  static constexpr int64_t kHidden[] = {512, 640, 768, 1024, 1150, 1280, 1536, 2048};
  do {
    if (drawn_ == kDraws) return false;
    const bool plain = drawn_ < kPlainDraws, normalizes = !plain && drawn_ < kWithNormalizing;
    ++drawn_;
    problem->cell = plain        ? draws_.Of(kCells)
                    : normalizes ? draws_.Of(kNormalizing)
                                 : draws_.Of(kAll);
    problem->dtype = plain ? draws_.Of(kDtypes) : normalizes ? "bf16" : "tf32";
    problem->batch = draws_.Of(kBatches);
    problem->lanes = 1;
    problem->hidden = draws_.Of(kHidden);
    problem->backward = draws_.Of({false, true});
  } while (!seen_.insert(*problem).second);
  return true;
}

std::vector<Cut> StationaryProblems::CutsOf(const Problem& problem,
                                            const haste::CudaProperties& cuda) {
  const std::vector<std::vector<Cut>> engines = CutsByEngine(problem, cuda);
  std::vector<Cut> taken, others;
  for (const std::vector<Cut>& cuts : engines) {
    if (cuts[0].engine == kTiledStationary) taken = cuts;
  }
  if (taken.empty()) return {};
  for (const std::vector<Cut>& cuts : engines) {
    const bool other = cuts[0].engine != kTiledStationary;
    if (other && cuts[0].clocks < kEngineMayBeBest * taken[0].clocks) others.push_back(cuts[0]);
  }
  taken.insert(taken.end(), others.begin(), others.end());
  return taken;
}

}  // namespace benchmark
