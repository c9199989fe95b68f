// The C++ API of a whole layer: gradients against finite differences, threads, SIMD targets, bad
// arguments.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/cpu/thread_pool.h"
#include "lib/haste/rnn.h"
#include "tests/lib/check.h"

namespace haste {
namespace {

constexpr int64_t kN = 3, kT = 5, kK = 2, kH = 7, kC = 4, kG = 4;
using Tensor = std::vector<double>;

struct Layer {
  Tensor x = Tensor(kN * kT * kC), W = Tensor(kC * kK * kG * kH), b = Tensor(kK * kG * kH),
         R = Tensor(kK * kH * kG * kH), h0 = Tensor(kN * kK * kH), c0 = Tensor(kN * kK * kH);
  std::vector<uint8_t> mask = std::vector<uint8_t>(kN * kT, 1);
};
struct Saved {
  Tensor y = Tensor(kN * kT * kK * kH), hT = Tensor(kN * kK * kH), cT = hT,
         gates = Tensor(kN * kT * kK * kG * kH), h = y, c = y;
};

const uint8_t kReverse[kK] = {0, 1};
const int64_t kSeed[2] = {11, 12};

RnnConfig TestConfig() {
  RnnConfig config = Config("lstm", HASTE_FLOAT64, HASTE_CPU, kN, kT, kK, kH);
  config.reverse = kReverse;
  config.training = 1;
  config.zoneout[0] = 0.2f;
  config.zoneout[1] = 0.3f;
  config.recurrent_dropout = 0.25f;
  return config;
}

std::vector<char> Workspace(const RnnConfig& config, bool backward) {
  size_t bytes = 0;
  const Status status = WorkspaceBytes(config, backward, &bytes);
  EXPECT_TRUE(status.ok(), "%s", status.message().c_str());
  return std::vector<char>(bytes + 64);
}
void* Aligned(std::vector<char>& memory) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<void*>((at + 63) / 64 * 64);
}

// wx lies in the reserve: the buffer becomes the gates.
void RunForward(const Layer& layer, Saved* saved, int threads) {
  const RnnConfig config = TestConfig();
  std::vector<char> memory = Workspace(config, false);
  ForwardArgs rnn = {};
  rnn.R = layer.R.data();
  rnn.s0[0] = layer.h0.data();
  rnn.s0[1] = layer.c0.data();
  rnn.mask = layer.mask.data();
  rnn.seed = kSeed;
  rnn.y = saved->y.data();
  rnn.sT[0] = saved->hT.data();
  rnn.sT[1] = saved->cT.data();
  rnn.gates = saved->gates.data();
  rnn.states[0] = saved->h.data();
  rnn.states[1] = saved->c.data();
  Executor executor = {};
  executor.threads = threads;
  const Status status =
      LayerForward(config, {kC, layer.x.data(), layer.W.data(), layer.b.data(), rnn.gates}, &rnn,
                   Aligned(memory), executor);
  EXPECT_TRUE(status.ok(), "%s", status.message().c_str());
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void Gradients(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](Tensor& t, double scale) {
    for (double& v : t) v = scale * normal(random);
  };
  Layer layer;
  for (Tensor* t : {&layer.x, &layer.W, &layer.b, &layer.R, &layer.h0, &layer.c0}) fill(*t, 0.5);
  for (uint8_t& m : layer.mask) m = normal(random) > -0.5;
  Tensor dy(kN * kT * kK * kH), dh(kN * kK * kH), dc(kN * kK * kH);
  for (Tensor* t : {&dy, &dh, &dc}) fill(*t, 1);

  Saved saved, one_thread;
  RunForward(layer, &saved, 2);
  RunForward(layer, &one_thread, 1);
  EXPECT_TRUE(saved.y == one_thread.y && saved.gates == one_thread.gates,
              "the same bits for any number of threads");
  const auto loss = [&] {
    Saved now;
    RunForward(layer, &now, 1);
    return Dot(now.y, dy) + Dot(now.hT, dh) + Dot(now.cT, dc);
  };

  Layer grad;
  const RnnConfig config = TestConfig();
  std::vector<char> memory = Workspace(config, true);
  BackwardArgs rnn = {};
  rnn.R = layer.R.data();
  rnn.mask = layer.mask.data();
  rnn.seed = kSeed;
  rnn.gates = saved.gates.data();
  rnn.states[0] = saved.h.data();
  rnn.states[1] = saved.c.data();
  rnn.dy = dy.data();
  rnn.dsT[0] = dh.data();
  rnn.dsT[1] = dc.data();
  rnn.dwx = saved.gates.data();
  rnn.ds0[0] = grad.h0.data();
  rnn.ds0[1] = grad.c0.data();
  const Status status = LayerBackward(config,
                                      {kC, layer.x.data(), layer.W.data(), grad.x.data(),
                                       grad.W.data(), grad.b.data(), grad.R.data()},
                                      rnn, Aligned(memory));
  EXPECT_TRUE(status.ok(), "%s", status.message().c_str());

  const struct {
    const char* name;
    Tensor* value;
    const Tensor* gradient;
  } inputs[] = {{"x", &layer.x, &grad.x}, {"W", &layer.W, &grad.W},    {"b", &layer.b, &grad.b},
                {"R", &layer.R, &grad.R}, {"h0", &layer.h0, &grad.h0}, {"c0", &layer.c0, &grad.c0}};
  constexpr double kStep = 1e-6;
  for (const auto& input : inputs) {
    for (size_t i = 0; i < input.value->size(); ++i) {
      double& v = (*input.value)[i];
      const double kept = v;
      v = kept + kStep;
      const double above = loss();
      v = kept - kStep;
      const double below = loss();
      v = kept;
      const double want = (above - below) / (2 * kStep);
      EXPECT_NEAR((*input.gradient)[i], want, 1e-7 * (1 + std::fabs(want)), "d%s[%zu], seed %u",
                  input.name, i, seed);
    }
  }
}

void BadArguments() {
  size_t bytes;
  const struct {
    const char* names;
    void (*spoil)(RnnConfig*);
  } cases[] = {
      {"cell", [](RnnConfig* c) { c->cell = "nlstm"; }},
      {"cell", [](RnnConfig* c) { c->cell = nullptr; }},
      {"dtype", [](RnnConfig* c) { c->dtype = 9; }},
      {"device", [](RnnConfig* c) { c->device = 7; }},
      {"engine", [](RnnConfig* c) { c->engine = "warp"; }},
      {"batch", [](RnnConfig* c) { c->batch = -1; }},
      {"time", [](RnnConfig* c) { c->time = int64_t{1} << 40; }},
      {"batch, time, lanes, hidden: wx", [](RnnConfig* c) { c->batch = c->time = 1 << 30; }},
      {"batch, time, lanes, hidden: wx", [](RnnConfig* c) { c->hidden = 1 << 30; }},  // R
      {"2147483647",
       [](RnnConfig* c) { c->batch = c->time = c->lanes = c->hidden = (int64_t{1} << 31) - 1; }},
      {"lanes", [](RnnConfig* c) { c->lanes = 0; }},
      {"hidden", [](RnnConfig* c) { c->hidden = 0; }},
      {"recurrent_activation", [](RnnConfig* c) { c->recurrent_activation = 5; }},
      {"zoneout", [](RnnConfig* c) { c->zoneout[1] = 1.5f; }},
      {"zoneout", [](RnnConfig* c) { c->zoneout[0] = NAN; }},
      {"recurrent_dropout", [](RnnConfig* c) { c->recurrent_dropout = 1.0f; }},
  };
  for (const auto& c : cases) {
    RnnConfig config = TestConfig();
    c.spoil(&config);
    const Status status = WorkspaceBytes(config, false, &bytes);
    EXPECT_TRUE(!status.ok() && status.message().find(c.names) != std::string::npos,
                "an error that names %s, got \"%s\"", c.names, status.message().c_str());
  }
  const RnnConfig config = TestConfig();
  RnnConfig huge = config;
  huge.batch = huge.time = 1 << 30;
  ForwardArgs args = {};
  args.seed = kSeed;
  const Status too_large = Forward(huge, args, nullptr);
  EXPECT_TRUE(too_large.message().find("1073741824") != std::string::npos, "%s",
              too_large.message().c_str());
  const Status features =
      LayerForward(config, {int64_t{1} << 60, nullptr, nullptr, nullptr, nullptr}, &args, nullptr);
  EXPECT_TRUE(features.message().find("features") == 0, "%s", features.message().c_str());
  HasteGemm gemm = {};
  gemm.m = gemm.n = gemm.k = int64_t{1} << 40;
  HasteStatus status = {};
  EXPECT_TRUE(haste_gemm(&gemm, nullptr, &status) == HASTE_INVALID_ARGUMENT &&
                  strstr(status.message, "m, n, k") != nullptr,
              "%s", status.message);
  const Status no_seed = Forward(config, {}, nullptr);
  EXPECT_TRUE(no_seed.message().find("seed") == 0, "%s", no_seed.message().c_str());
}

void EmptyWalks() {
  RnnConfig config = Config("lstm", HASTE_FLOAT32, HASTE_CPU, 2, 0, 1, 3);
  const float h0[6] = {1, 2, 3, 4, 5, 6};
  float hT[6] = {}, cT[6] = {9, 9, 9, 9, 9, 9};
  ForwardArgs args = {};
  args.s0[0] = h0;
  args.sT[0] = hT;
  args.sT[1] = cT;
  EXPECT_TRUE(Forward(config, args, nullptr).ok(), "T=0");
  EXPECT_TRUE(memcmp(h0, hT, sizeof h0) == 0, "no steps: the initial state is the final one");
  EXPECT_TRUE(std::all_of(cT, cT + 6, [](float v) { return v == 0; }), "no initial state: 0");
  config.time = 4;
  config.batch = 0;
  EXPECT_TRUE(Forward(config, {}, nullptr).ok(), "N=0");
}

// What C++ throws underneath does not cross the C ABI.
void Exceptions() {
  const int64_t size = 256;
  const std::vector<float> a(size * size), b(size * size);
  std::vector<float> c(size * size);
  HasteGemm gemm = {};
  gemm.m = gemm.n = gemm.k = gemm.a_row = gemm.b_row = gemm.c_row = size;
  gemm.a_col = gemm.b_col = 1;
  gemm.a = a.data();
  gemm.b = b.data();
  gemm.c = c.data();
  Executor executor = {};
  executor.threads = 2;
  const struct {
    void (*schedule)(void*, void (*)(void*), void*);
    const char* text;
  } cases[] = {
      {[](void*, void (*)(void*), void*) { throw std::bad_alloc(); }, "out of memory"},
      {[](void*, void (*)(void*), void*) { throw std::runtime_error("no threads"); }, "no threads"},
      {[](void*, void (*)(void*), void*) { throw 1; }, "unknown"},
  };
  for (const auto& thrown : cases) {
    executor.schedule = thrown.schedule;
    HasteStatus status = {};
    EXPECT_TRUE(haste_gemm(&gemm, &executor, &status) == HASTE_INTERNAL &&
                    strstr(status.message, thrown.text) != nullptr,
                "%s", status.message);
  }
}

// Whether haste's own threads do what they are given, within ten seconds.
bool ThreadsWork() {
  static std::atomic<bool> done;
  done = false;
  ThreadPool::Shared().Schedule([](void*) { done = true; }, nullptr);
  for (int i = 0; i < 10000 && !done; ++i) usleep(1000);
  return done;
}

}  // namespace
}  // namespace haste

// The tests on one SIMD target, in a process of its own: the library chooses once.
int RunOn(const char* target, unsigned seed) {
  const pid_t child = fork();
  if (child == 0) {
    if (target != nullptr) setenv("HASTE_SIMD_TARGET", target, 1);
    haste::Gradients(seed);
    haste::BadArguments();
    haste::EmptyWalks();
    haste::Exceptions();
    _exit(haste_test::Report(target == nullptr ? "api_test" : target));
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status;
}

// A child has none of the threads that its parent started, and starts its own; so does its child.
int ForkWithThreads(unsigned seed, int generations) {
  EXPECT_TRUE(haste::ThreadsWork(), "%d generations to come", generations);
  if (generations > 0) {
    const pid_t child = fork();
    if (child == 0) _exit(ForkWithThreads(seed, generations - 1));
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(status == 0, "a forked child failed");
    EXPECT_TRUE(haste::ThreadsWork(), "the parent's threads still work");
  } else {
    haste::Gradients(seed);
  }
  return haste_test::Failures() == 0 ? 0 : 1;
}

// One line, and the value is ignored.
int UnknownTarget() {
  int out[2];
  if (pipe(out) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDERR_FILENO);
    setenv("HASTE_SIMD_TARGET", "sse9", 1);
    haste::Gradients(1);
    _exit(haste_test::Failures() == 0 ? 0 : 1);
  }
  close(out[1]);
  char text[512] = "";
  for (ssize_t got, used = 0; (got = read(out[0], text + used, sizeof text - 1 - used)) > 0;) {
    used += got;
  }
  close(out[0]);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(strstr(text, "HASTE_SIMD_TARGET") && strstr(text, "sse9"), "\"%s\"", text);
  const char* end = strchr(text, '\n');
  EXPECT_TRUE(end != nullptr && end[1] == 0, "one line: \"%s\"", text);
  return status;
}

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  int failed = 0;
  for (const char* target : {static_cast<const char*>(nullptr), "avx2", "baseline"}) {
    failed |= RunOn(target, seed);
  }
  failed |= UnknownTarget();
  failed |= ForkWithThreads(seed, 2);
  failed |= haste_test::Report("forks");
  return failed == 0 ? 0 : 1;
}
