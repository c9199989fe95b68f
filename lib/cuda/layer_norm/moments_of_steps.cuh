// Forward's statistics of all steps, made again before a walk backward where R is stationary, of
// what forward kept.
#pragma once

#include "lib/cuda/layer_norm/rows_backward.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"

namespace haste {

// Numbers of a thread: their sum, and that of squares, of distances from one of the row's.
class DistanceSums {
 public:
  HASTE_DEVICE explicit DistanceSums(float from) : from_(from) {}

  HASTE_DEVICE void Add(float v) {
    const float distance = v - from_;
    sum_ += distance;
    squares_ = MulAdd(distance, distance, squares_);
  }
  // count: of the numbers.
  HASTE_DEVICE float Sum(float count) const { return MulAdd(count, from_, sum_); }
  HASTE_DEVICE float SquaresFrom(float mean, float count) const {
    const float between = from_ - mean;
    return MulAdd(between, MulAdd(count, between, 2.0f * sum_), squares_);
  }

 private:
  const float from_;
  float sum_ = 0, squares_ = 0;
};

// What a step's statistics are made of, of units j and j + 1 of a row [N, T, K].
template <class Cell, class P>
class MomentsInputs {
  using T = typename P::Storage;
  using Pair = StoredPair<T>;
  static constexpr int kGates = Cell::kGates, kState = Cell::kNormalizesState;

 public:
  // kPaired: pairs of units are whole words of all tensors. two: else the second is 0.
  template <bool kPaired>
  HASTE_DEVICE void Load(const P& p, int64_t row, int j, bool two) {
    const auto load = [&](const void* tensor, int64_t at) {
      const T* from = static_cast<const T*>(tensor) + at;
      if constexpr (kPaired) return __ldg(reinterpret_cast<const Pair*>(from));
      return PairOf(from[0], two ? from[1] : T{});
    };
    const int64_t one = row * p.H + j, gates = row * kGates * p.H + j;
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      products_[g] = load(p.args.products, gates + g * p.H);
      if constexpr (kState > 0) kept_[g] = load(p.args.gates, gates + g * p.H);
    }
    HASTE_UNROLL for (int i = kGates; i < Cell::kKept && kState > 0; ++i) {
      kept_[i] = load(p.args.saved[kSavedStates<Cell> + i - kGates], one);
    }
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      prev_[s] = ReadsState<Cell>(s) ? load(p.args.saved[SavedAt<Cell>(s)], one) : Pair{};
    }
  }

  // Of unit m of the pair.
  HASTE_DEVICE float Product(int m, int g) const { return ToCompute(OfPair<T>(products_[g], m)); }
  HASTE_DEVICE float Hidden(int m) const { return ToCompute(OfPair<T>(prev_[0], m)); }
  // The state that is normalised. 0 if none is.
  HASTE_DEVICE float State(int m) const {
    if constexpr (kState > 0) {
      float kept[Cell::kKept], prev[Cell::kStates];
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept[i] =
          ToCompute(OfPair<T>(kept_[i], m));
      HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
        prev[s] = ToCompute(OfPair<T>(prev_[s], m));
      }
      return Cell::NewState(kept, prev);
    }
    return 0.0f;
  }

 private:
  Pair products_[kGates], kept_[Cell::kKept], prev_[Cell::kStates];
};

constexpr int kMomentsThreads = 256;

// A row's statistics, made by a warp, which reads each number once.
template <class Cell, bool kPaired, class P>
HASTE_DEVICE void MomentsOfStep(const P& p, int64_t row) {
  const int hidden = static_cast<int>(p.H);
  MomentsInputs<Cell, P> inputs;
  inputs.template Load<kPaired>(p, row, 0, hidden > 1);
  const float first_product = inputs.Product(0, 0), first_state = inputs.State(0);
  DistanceSums products(first_product), states(first_state);
  bool felt = false;
  int count = 0;
#pragma unroll 4
  for (int j = threadIdx.x % kWarpThreads * 2; j < hidden; j += 2 * kWarpThreads) {
    const bool two = kPaired || j + 1 < hidden;
    inputs.template Load<kPaired>(p, row, j, two);
    HASTE_UNROLL for (int m = 0; m < 2; ++m) {
      // In place of a unit after the last: distances of 0.
      const bool exists = m == 0 || two;
      HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
        products.Add(exists ? inputs.Product(m, g) : first_product);
      }
      if constexpr (Cell::kNormalizesState > 0) {
        states.Add(exists ? inputs.State(m) : first_state);
      }
      float h = inputs.Hidden(m);
      if constexpr (kMixesHidden<Cell>) {
        const Element e(p, row / p.K / p.T_, row % p.K, j + m, exists);
        if (exists) h *= DropScale(p, e);
      }
      felt |= h != 0;
    }
    count += two ? 2 : 1;
  }
  const float units = static_cast<float>(hidden), own = static_cast<float>(count);
  const float elements = Cell::kGates * units, own_elements = Cell::kGates * own;
  float sum[2] = {products.Sum(own_elements), states.Sum(own)};
  SumOfWarp(sum);
  const float mean = sum[0] / elements, of_state = sum[1] / units;
  sum[0] = products.SquaresFrom(mean, own_elements);
  sum[1] = states.SquaresFrom(of_state, own);
  SumOfWarp(sum);
  felt = __any_sync(0xFFFFFFFFu, felt) != 0;
  if (threadIdx.x % kWarpThreads == 0) {
    const float scale = InverseDeviation(sum[0], elements, p.norm.epsilon);
    p.norm.moments[row] = make_float4(mean, felt ? scale : -scale, of_state,
                                      InverseDeviation(sum[1], units, p.norm.epsilon));
  }
}

// Of each row [N, T, K]: mean and scale of h·R, mean and scale of the state. A scale of h·R with a
// minus: of a row whose h is 0.
template <class Cell, class P>
__global__ void __launch_bounds__(kMomentsThreads) MomentsOfSteps(const __grid_constant__ P p) {
  constexpr int kWarps = kMomentsThreads / kWarpThreads;
  const bool paired = ArePaired(p, p.args.products) && ReserveIsPaired<Cell>(p);
  int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  for (; row < p.N * p.T_ * p.K; row += int64_t{gridDim.x} * kWarps) {
    paired ? MomentsOfStep<Cell, true>(p, row) : MomentsOfStep<Cell, false>(p, row);
  }
}

}  // namespace haste
