// How a large product of floats on CUDA is cut: pure arithmetic.
//
// An operand becomes three bfloat16 parts, and the six products of parts that matter are cuBLAS's,
// on tensor cores (lib/cuda/parts_gemm.cu.cc). In memory are the parts of a chunk at a time: for
// some depth those of the smaller operand, and of as much of the larger as there is room for.
#ifndef HASTE_LIB_PRODUCT_PLAN_H_
#define HASTE_LIB_PRODUCT_PLAN_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/ceil_div.h"
#include "lib/haste/c_api.h"

namespace haste {

constexpr int kProductParts = 3;
constexpr int64_t kProductAlign = 8;  // bfloat16s: 16 bytes

// Tensor cores cut off what they add up; so many terms of a sum at most, before it is rounded.
constexpr int64_t kSumDepth = 1024;

struct ProductPlan {
  bool by_parts;                 // else floats are multiplied as they are
  bool a_stays;                  // a is the smaller operand
  int64_t rows, columns, depth;  // of a chunk; the depth is padded

  int64_t a_elements() const { return kProductParts * depth * PadTo(rows, kProductAlign); }
  int64_t b_elements() const { return kProductParts * depth * PadTo(columns, kProductAlign); }
  size_t bytes() const { return (a_elements() + b_elements()) * sizeof(uint16_t); }
};

// sm_major, sm_minor: the GPU's compute capability, whatever code was made for.
ProductPlan PlanProduct(const HasteGemm&, int sm_major, int sm_minor);

}  // namespace haste

#endif  // HASTE_LIB_PRODUCT_PLAN_H_
