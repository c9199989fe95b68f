// The machine's peak rates, to compare measurements with.
#ifndef HASTE_BENCHMARKS_CPP_PEAK_H_
#define HASTE_BENCHMARKS_CPP_PEAK_H_

#include <stdint.h>

namespace benchmark {

// Multiply-adds of float32 that FmaBurst does, in registers, with the widest vectors there are.
double BurstMacs();
// Returns a number that depends on all of them.
float FmaBurst();

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PEAK_H_
