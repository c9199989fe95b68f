#include "benchmarks/cpp/planner/cuda_half.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "lib/base/dtypes.h"
#include "lib/base/status.h"

namespace benchmark {
namespace {

constexpr size_t kArenaBytes = size_t{8} << 30;
// The first call loads kernels, the second one may record a graph.
constexpr int kUntimed = 2, kTimed = 5;

}  // namespace

const haste::CudaBackend& LoadCudaHalf(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  const auto get =
      reinterpret_cast<const haste::CudaBackend* (*)()>(dlsym(library, "haste_cuda_backend"));
  if (get == nullptr) Fail("not the CUDA half: " + std::string(path));
  const haste::CudaBackend& backend = *get();
  if (std::string(backend.version) != HASTE_VERSION ||
      backend.table_bytes != sizeof(haste::CudaBackend)) {
    Fail("the CUDA half is of another version");
  }
  return backend;
}

void PrintGpu(const Gpu& gpu, const haste::CudaProperties& cuda) {
  std::printf("# %s, %d.%d, %d, %lld, %lld", gpu.name().c_str(), cuda.sm_major, cuda.sm_minor,
              cuda.multiprocessors, static_cast<long long>(cuda.shared_bytes_per_block),
              static_cast<long long>(cuda.l2_bytes));
  for (int count : cuda.clusters) std::printf(", %d", count);
  std::puts("");
}

Memory::Memory(const haste::CudaBackend& backend, const Gpu& gpu)
    : backend_(backend), gpu_(gpu), pattern_(1 << 20) {
  HasteStatus status = {};
  for (char** arena : {&read_, &written_, &scratch_}) {
    void* memory = nullptr;
    if (backend.ops.allocate(kArenaBytes, &memory, &status) != HASTE_OK) Fail(status.message);
    *arena = static_cast<char*>(memory);
  }
  Fill();
}

void Memory::FillFor(int32_t dtype) {
  if (is_float16_ == (dtype == HASTE_FLOAT16)) return;
  is_float16_ = !is_float16_;
  Fill();
}

void Memory::Fill() {
  // As bfloat16 and as float32, or as float16, between 2^-7 and 2^-6, as float64 less, of both
  // signs.
  const uint32_t least = is_float16_ ? 0x20002000 : 0x3C003C00;
  const uint32_t mantissas = is_float16_ ? 0x03FF03FF : 0x007F007F;
  uint32_t random = 1;
  for (uint32_t& word : pattern_) {
    random = random * 1664525 + 1013904223;
    word = least | (random & 0x80008000) | (random >> 8 & mantissas);
  }
  size_t filled = pattern_.size() * sizeof(uint32_t);
  gpu_.Upload(read_, pattern_.data(), filled);
  HasteStatus status = {};
  HasteExecutor executor = {};
  executor.stream = gpu_.stream();
  for (; filled < kArenaBytes; filled *= 2) {
    const size_t bytes = std::min(filled, kArenaBytes - filled);
    if (backend_.ops.copy(read_ + filled, read_, bytes, executor, &status) != HASTE_OK) {
      Fail(status.message);
    }
  }
}

bool Memory::Fits(size_t scratch_bytes) const {
  return std::max({read_at_, written_at_, scratch_bytes}) <= kArenaBytes;
}

void* Memory::Take(char* arena, size_t bytes, size_t* at) {
  void* const taken = arena + *at;
  *at += (bytes + 255) / 256 * 256;
  return taken;
}

double Memory::At(const void* tensor, int64_t element, int32_t dtype) const {
  const size_t size = dtype == HASTE_FLOAT64 ? 8 : dtype == HASTE_FLOAT32 ? 4 : 2;
  const size_t at = static_cast<const char*>(tensor) - read_ + element * size;
  return ElementOf(
      reinterpret_cast<const char*>(pattern_.data()) + at % (pattern_.size() * sizeof(uint32_t)), 0,
      dtype);
}

double ElementOf(const void* tensor, int64_t element, int32_t dtype) {
  if (dtype == HASTE_FLOAT64) return static_cast<const double*>(tensor)[element];
  if (dtype == HASTE_FLOAT32) return static_cast<const float*>(tensor)[element];
  const uint32_t half = static_cast<const uint16_t*>(tensor)[element];
  if (dtype == HASTE_FLOAT16) {
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double value = exponent == 0   ? std::ldexp(mantissa, -24)
                         : exponent < 31 ? std::ldexp(1024 + mantissa, exponent - 25)
                                         : NAN;  // or infinite
    return half >> 15 != 0 ? -value : value;
  }
  if (dtype != HASTE_BFLOAT16) Fail("no such elements");
  const uint32_t bits = half << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<double> SomeOf(const Gpu& gpu, const void* tensor, int64_t elements, int32_t dtype) {
  std::vector<double> some;
  const int64_t size = static_cast<int64_t>(haste::DtypeSize(dtype));
  for (int i = 0; i < kChecked; ++i) {
    const int64_t at = (elements - 1) * i / (kChecked - 1);
    double room;
    gpu.Download(&room, static_cast<const char*>(tensor) + at * size, size);
    some.push_back(ElementOf(&room, 0, dtype));
  }
  return some;
}

bool AreSame(const Gpu& gpu, const Tensors& tensors, int32_t dtype, double tolerance,
             std::vector<std::vector<double>>* first) {
  const bool is_first = first->empty();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<double> some = SomeOf(gpu, tensors[i].first, tensors[i].second, dtype);
    if (is_first) {
      first->push_back(some);
      continue;
    }
    double most = 0;
    for (double right : (*first)[i]) most = std::max(most, std::abs(right));
    for (int j = 0; j < kChecked; ++j) {
      const double off = std::abs(some[j] - (*first)[i][j]);
      if (off <= tolerance * most && most > 0) continue;  // else, or not a number
      std::fprintf(stderr, "tensor %zu: off by %g of %g\n", i, off, most);
      return false;
    }
  }
  return true;
}

double MedianMicroseconds(const Gpu& gpu, const std::function<int32_t()>& call, bool after) {
  std::vector<double> times;
  for (int i = 0; i < kUntimed + kTimed; ++i) {
    if (after) gpu.KeepBusy();
    gpu.Start();
    if (call() != HASTE_OK) return 0;
    times.push_back(gpu.MicrosecondsSinceStart());
    if (times.back() < 0) return kHangs;
  }
  std::sort(times.begin() + kUntimed, times.end());
  return times[kUntimed + kTimed / 2];
}

}  // namespace benchmark
