#include "benchmarks/cpp/cuda_half.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

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

Memory::Memory(const haste::CudaBackend& backend, const Gpu& gpu) : pattern_(1 << 20) {
  HasteStatus status = {};
  for (char** arena : {&read_, &written_, &scratch_}) {
    void* memory = nullptr;
    if (backend.ops.allocate(kArenaBytes, &memory, &status) != HASTE_OK) Fail(status.message);
    *arena = static_cast<char*>(memory);
  }
  // As bfloat16 and as float32 between 2^-7 and 2^-6, as float64 less, of both signs.
  uint32_t random = 1;
  for (uint32_t& word : pattern_) {
    random = random * 1664525 + 1013904223;
    word = 0x3C003C00 | (random & 0x80008000) | (random >> 8 & 0x007F007F);
  }
  size_t filled = pattern_.size() * sizeof(uint32_t);
  gpu.Upload(read_, pattern_.data(), filled);
  HasteExecutor executor = {};
  executor.stream = gpu.stream();
  for (; filled < kArenaBytes; filled *= 2) {
    const size_t bytes = std::min(filled, kArenaBytes - filled);
    if (backend.ops.copy(read_ + filled, read_, bytes, executor, &status) != HASTE_OK) {
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
  if (dtype != HASTE_BFLOAT16) Fail("no such elements");
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(tensor)[element]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
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
