// Products of 16 bits and in TensorFloat-32 whose sizes or strides are no multiples of 16 bytes.
// cuBLAS takes three to seven times as long for them, so large ones go through copies that are
// filled up with zeros.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

class PaddedProduct {
 public:
  // Of a product that cuBLAS takes. Its pointers and c_row are not looked at, so that the size of
  // its memory can be asked for without them.
  explicit PaddedProduct(const HasteGemm& gemm);

  // Whether copies pay.
  explicit operator bool() const { return copies_a_ || copies_b_ || copies_c_; }
  // Memory for them; 0 if they do not pay.
  size_t bytes() const { return bytes_; }

  // Copies a and b to `memory`, aligned to 16 bytes, as far as they are copied. *product: what is
  // to be computed then, without the bias.
  int32_t Begin(void* memory, const HasteExecutor& executor, HasteGemm* product,
                HasteStatus* status) const;
  // After the product.
  int32_t End(const HasteGemm& product, const HasteExecutor& executor, HasteStatus* status) const;

 private:
  const HasteGemm& gemm_;
  int64_t m_, n_, k_;  // padded
  bool copies_a_ = false, copies_b_ = false, copies_c_ = false;
  size_t a_bytes_ = 0, b_bytes_ = 0, bytes_ = 0;
};

}  // namespace haste
