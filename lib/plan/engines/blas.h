// How the CUDA engine `blas` cuts the products of a step: pure arithmetic.
//
// A product is [rows of the batch, depth] · [depth, columns], for each lane, by cuBLAS. Where it
// would keep few multiprocessors busy, the depth is cut into `splits` products of a batch, and the
// cell's kernel adds up their sums.
#pragma once

#include <stdint.h>

#include "lib/base/int_math.h"
#include "lib/plan/engines/device.h"

namespace haste {

struct BlasCosts;  // lib/plan/costs/cost_table.h

struct BlasProblem {
  int64_t batch, lanes, hidden;
  int gates;  // of R that are multiplied
  bool backward;
  int storage_bytes;  // of an element
  int operand_terms;  // of what R is multiplied with
  bool exact;         // of floats: not as TensorFloat-32 is
  bool whole_depth;   // the depth must not be split: nothing adds up the sums of splits

  int64_t depth() const { return backward ? gates * hidden : hidden; }
  int64_t columns() const { return backward ? hidden : gates * hidden; }
};

// Padding makes rows of all operands multiples of 16 bytes.
struct BlasTiling {
  int splits;
  int64_t depth, columns;  // padded; depth of a split
};

// False where cuBLAS could not count it.
bool PlanBlas(const BlasProblem&, const CudaProperties&, BlasTiling*);

// Estimated clocks of a product and the cell after it.
double BlasClocks(const BlasProblem&, const CudaProperties&, const BlasCosts&);

}  // namespace haste
