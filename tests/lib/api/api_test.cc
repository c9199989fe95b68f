// The C++ API of a whole layer of every cell: gradients against finite differences, threads, SIMD
// targets, bad arguments.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "haste/rnn.h"
#include "lib/cpu/threads/thread_pool.h"
#include "tests/lib/check.h"
#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"

namespace haste {
namespace {

using haste_test::CheckGradient;
using haste_test::Dot;
using haste_test::Problem;
using haste_test::Tensor;
using haste_test::Tensors;

constexpr int64_t kN = 3, kT = 5, kK = 2, kH = 7;
const uint8_t kReverse[kK] = {0, 1};
const int64_t kSeed[2] = {11, 12};

void Regularise(RnnConfig* config) {
  config->reverse = kReverse;
  config->training = 1;
  config->zoneout[0] = 0.2f;
  config->zoneout[1] = 0.3f;
  config->recurrent_dropout = 0.25f;
}

RnnConfig TestConfig() {
  RnnConfig config = Config("lstm", HASTE_FLOAT64, HASTE_CPU, kN, kT, kK, kH);
  Regularise(&config);
  return config;
}

// A whole layer of a cell, with and without normalisation of x·W. recurrence_test tests the
// recurrence itself.
void LayerGradients(const HasteCellInfo& cell, bool input_norm, std::mt19937& random) {
  Problem problem(cell, kN, kT, kK, kH);
  problem.features = 4;
  problem.input_norm = input_norm;
  if (cell.recurrence == HASTE_DENSE) Regularise(&problem.config);
  for (int i = 0; i < kN * kT; ++i) problem.mask.push_back(random() % 3 != 0);
  Tensors in = problem.Inputs(random, /*initial_states=*/true);
  Tensors weights;
  for (double& v : weights["y"] = Tensor(problem.walk_size())) v = random() % 100 / 50.0 - 1;
  const Tensors out = problem.Forward(in, 2, /*in_place=*/true);
  EXPECT_TRUE(problem.Forward(in, 1) == out, "%s: the same bits for any number of threads",
              cell.name);
  const Tensors grad = problem.Backward(in, out, weights, 2, /*in_place=*/true);
  const auto loss = [&] {
    return Dot(problem.Forward(in, 1, /*in_place=*/false, /*keep=*/false).at("y"), weights.at("y"));
  };
  for (auto& [name, value] : in) {
    if (problem.IsConstant(name)) continue;
    CheckGradient(std::string(cell.name) + (input_norm ? ", normalised, " : ", ") + name, value,
                  grad.at(name), loss, SIZE_MAX, random);
  }
}

void Gradients(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < haste_cell_count(); ++i) {
    for (const bool input_norm : {false, true}) {
      if (!haste_cell(i)->separate_gates) LayerGradients(*haste_cell(i), input_norm, random);
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
      {"recurrent_activation", [](RnnConfig* c) { c->recurrent_activation = HASTE_EXPONENTIAL; }},
      {"recurrent_activation",
       [](RnnConfig* c) { c->cell = "slstm", c->recurrent_activation = HASTE_TANH; }},
      {"activation", [](RnnConfig* c) { c->cell = "slstm", c->activation = HASTE_EXPONENTIAL; }},
      {"recurrent_dropout", [](RnnConfig* c) { c->cell = "qrnn_f"; }},
      {"epsilon", [](RnnConfig* c) { c->cell = "layer_norm_gru", c->epsilon = 0; }},
      {"zoneout", [](RnnConfig* c) { c->zoneout[1] = 1.5f; }},
      {"zoneout", [](RnnConfig* c) { c->zoneout[0] = NAN; }},
      {"zoneout",
       [](RnnConfig* c) {
         c->cell = "slstm", c->recurrent_activation = HASTE_SIGMOID, c->zoneout[2] = 0.3f;
       }},
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
  LayerForwardArgs wide = {};
  wide.features = int64_t{1} << 60;
  const Status features = LayerForward(config, wide, args, nullptr);
  EXPECT_TRUE(features.message().find("features") == 0, "%s", features.message().c_str());
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.m = gemm.n = gemm.k = int64_t{1} << 40;
  HasteStatus status = {};
  EXPECT_TRUE(haste_gemm(&gemm, nullptr, nullptr, &status) == HASTE_INVALID_ARGUMENT &&
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

// C++ exceptions do not cross the C ABI.
void Exceptions() {
  const int64_t size = 256;
  const std::vector<float> a(size * size), b(size * size);
  std::vector<float> c(size * size);
  HasteGemm gemm = HASTE_INIT(HasteGemm);
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
    EXPECT_TRUE(haste_gemm(&gemm, nullptr, &executor, &status) == HASTE_INTERNAL &&
                    strstr(status.message, thrown.text) != nullptr,
                "%s", status.message);
  }
}

// Whether haste's own threads finish their work within ten seconds.
bool ThreadsWork() {
  static std::atomic<bool> done;
  done = false;
  ThreadPool::Shared().Schedule([](void*) { done = true; }, nullptr);
  for (int i = 0; i < 10000 && !done; ++i) usleep(1000);
  return done;
}

// The target that the library reports with HASTE_SIMD_TARGET=target. A build may lack AVX2.
void TargetName(const char* target) {
  const std::string name = haste_cpu_target();
#if defined(__x86_64__)
  const bool held_back = target != nullptr;
  bool right = name == "baseline";
  if (held_back && strcmp(target, "avx2") == 0) right |= name == "AVX2";
  if (!held_back && __builtin_cpu_supports("avx2")) right = name == "AVX2" || name == "AVX-512";
  if (!held_back && __builtin_cpu_supports("avx512vl")) right = name == "AVX-512";
  EXPECT_TRUE(right, "%s where %s is allowed", name.c_str(), held_back ? target : "all");
#else
  EXPECT_TRUE(name == "NEON" || name == "baseline", "%s", name.c_str());
#endif
}

void Memory() {
  HasteStatus status = {};
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{1000}}) {
    void* memory = nullptr;
    EXPECT_TRUE(haste_allocate(HASTE_CPU, bytes, &memory, &status) == HASTE_OK, "%s",
                status.message);
    EXPECT_TRUE(memory != nullptr && reinterpret_cast<uintptr_t>(memory) % 64 == 0, "%p", memory);
    memset(memory, 1, bytes);
    EXPECT_TRUE(haste_free(HASTE_CPU, memory, &status) == HASTE_OK, "%s", status.message);
  }
  void* memory = &status;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX / 2}) {
    EXPECT_TRUE(haste_allocate(HASTE_CPU, bytes, &memory, &status) == HASTE_INTERNAL, "too much");
    EXPECT_TRUE(memory == nullptr && strstr(status.message, "bytes") == status.message, "%s",
                status.message);
  }
  EXPECT_TRUE(haste_allocate(7, 1, &memory, &status) == HASTE_INVALID_ARGUMENT, "no device 7");
  EXPECT_TRUE(haste_free(HASTE_CPU, nullptr, nullptr) == HASTE_OK, "NULL");

  ScratchMemory scratch(HASTE_CPU);
  EXPECT_TRUE(scratch.Reserve(100).ok() && scratch.size() >= 100, "%zu", scratch.size());
  const void* const first = scratch.data();
  EXPECT_TRUE(scratch.Reserve(10).ok() && scratch.data() == first, "it does not shrink");
  EXPECT_TRUE(scratch.Reserve(1 << 20).ok() && scratch.size() >= 1 << 20, "it grows");
  EXPECT_TRUE(!scratch.Reserve(SIZE_MAX).ok() && scratch.data() == nullptr && scratch.size() == 0,
              "no memory");
}

void Setters() {
  float t[1];
  uint8_t bytes[1];
  int64_t seed[2];
  const RnnConfig config = RnnConfig()
                               .set_engine("blas")
                               .set_reverse(bytes)
                               .set_activations(HASTE_RELU, HASTE_HARD_SIGMOID)
                               .set_training(true)
                               .set_zero_output_for_mask(true)
                               .set_zoneout(1, 0.5f)
                               .set_recurrent_dropout(0.25f)
                               .set_epsilon(1.0f)
                               .set_allow_tf32(true);
  EXPECT_TRUE(strcmp(config.engine, "blas") == 0 && config.reverse == bytes, "engine, reverse");
  EXPECT_TRUE(config.activation == HASTE_RELU && config.recurrent_activation == HASTE_HARD_SIGMOID,
              "activations");
  EXPECT_TRUE(config.training == 1 && config.zero_output_for_mask == 1 && config.allow_tf32 == 1,
              "switches");
  EXPECT_TRUE(config.zoneout[0] == 0 && config.zoneout[1] == 0.5f, "zoneout");
  EXPECT_TRUE(config.recurrent_dropout == 0.25f && config.epsilon == 1.0f, "numbers");

  const ForwardArgs none;
  EXPECT_TRUE(none.y == nullptr && none.keep == 0, "nothing is set");
  const auto forward =
      ForwardArgs().set_y(t).set_seed(seed).set_initial_state(1, t).set_saved(2, t);
  EXPECT_TRUE(forward.y == t && forward.seed == seed && forward.s0[1] == t, "forward");
  EXPECT_TRUE(forward.saved[2] == t && forward.keep == 1, "what backward reads is kept");
  const auto backward = BackwardArgs().set_dwx(t).set_final_state_gradient(1, t).set_mask(bytes);
  EXPECT_TRUE(backward.dwx == t && backward.dsT[1] == t && backward.mask == bytes, "backward");
  const auto layer = LayerForwardArgs().set_features(3).set_W(t).set_normalization(t, seed);
  EXPECT_TRUE(layer.features == 3 && layer.W == t && layer.gamma == t && layer.xw == seed, "layer");
  const auto gradients = LayerBackwardArgs().set_dW(t).set_normalization(t, seed, bytes);
  EXPECT_TRUE(gradients.dW == t && gradients.xw == seed && gradients.dgamma == bytes, "gradients");
}

}  // namespace
}  // namespace haste

// A forked child does not have its parent's threads and starts its own; so does its own child.
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
  const unsigned seed = haste_test::RandomSeed();
  int failed = haste_test::OnTargets("api_test", {"avx2", "baseline"}, [&](const char* target) {
    haste::TargetName(target);
    haste::Gradients(seed);
    haste::BadArguments();
    haste::EmptyWalks();
    haste::Memory();
    haste::Setters();
    haste::Exceptions();
  });
  failed |= UnknownTarget();
  failed |= ForkWithThreads(seed, 2);
  failed |= haste_test::Report("forks");
  return failed == 0 ? 0 : 1;
}
