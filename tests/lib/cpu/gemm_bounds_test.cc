// haste_gemm reads nothing that lies after its operands: each ends where the process may not read.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "haste/c_api.h"
#include "tests/lib/check.h"
#include "tests/lib/simd_targets.h"

namespace haste_test {
namespace {

// Ones at the end of a page that is followed by one without access.
template <class T>
class AtTheEnd {
 public:
  explicit AtTheEnd(int64_t count) {
    const size_t page = sysconf(_SC_PAGESIZE), bytes = count * sizeof(T);
    const size_t body = (bytes + page - 1) / page * page;
    bytes_ = body + page;
    map_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_TRUE(map_ != MAP_FAILED && mprotect(map_ + body, page, PROT_NONE) == 0, "mmap");
    data_ = reinterpret_cast<T*>(map_ + body - bytes);
    std::fill(data_, data_ + count, T(1));
  }
  ~AtTheEnd() { munmap(map_, bytes_); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  T* data() { return data_; }

 private:
  char* map_;
  size_t bytes_;
  T* data_;
};

template <class T>
void Product(HasteDtype dtype, int64_t m, int64_t n, int64_t k, bool a_t, bool b_t) {
  AtTheEnd<T> a(m * k), b(k * n), c(m * n);
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = dtype;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.a = a.data();
  gemm.a_row = a_t ? 1 : k;
  gemm.a_col = a_t ? m : 1;
  gemm.b = b.data();
  gemm.b_row = b_t ? 1 : n;
  gemm.b_col = b_t ? k : 1;
  gemm.c = c.data();
  gemm.c_row = n;
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  executor.threads = 1;
  HasteStatus status = {};
  EXPECT_TRUE(haste_gemm(&gemm, nullptr, &executor, &status) == HASTE_OK, "%s", status.message);
  EXPECT_TRUE(std::all_of(c.data(), c.data() + m * n, [&](T v) { return v == T(k); }),
              "m=%d n=%d k=%d", static_cast<int>(m), static_cast<int>(n), static_cast<int>(k));
}

template <class T>
void Products(HasteDtype dtype) {
  for (int64_t m = 1; m <= 40; ++m) {
    for (int64_t k : {1, 2, 3, 5, 256, 257}) {
      for (int64_t n : {3, 8, 40}) {
        for (int form = 0; form < 3; ++form) Product<T>(dtype, m, n, k, form == 1, form == 2);
      }
    }
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  const auto test = [](const char*) {
    haste_test::Products<float>(HASTE_FLOAT32);
    haste_test::Products<double>(HASTE_FLOAT64);
  };
  return haste_test::OnTargets("gemm_bounds_test", {"avx2", "baseline"}, test);
}
