// A loop whose index is a constant in each iteration, for arrays that must stay in registers.
// HASTE_UNROLL asks for the same, but the compiler of CUDA 12.4 does not unroll some loops,
// which leaves the arrays in memory.
#pragma once

#include <type_traits>
#include <utility>

#include "lib/cuda/ptx/device_code.cuh"

namespace haste {

template <class Visit, int... kIndex>
HASTE_DEVICE void UnrolledOver(std::integer_sequence<int, kIndex...>, const Visit& visit) {
  static_cast<void>((visit(std::integral_constant<int, kIndex>()) && ...));
}
// Calls visit(0), visit(1), … visit(kCount - 1); stops when it returns false.
template <int kCount, class Visit>
HASTE_DEVICE void Unrolled(const Visit& visit) {
  UnrolledOver(std::make_integer_sequence<int, kCount>(), visit);
}

}  // namespace haste
