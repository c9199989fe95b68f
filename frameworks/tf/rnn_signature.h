// The arguments of a cell's two ops, and what their shapes must agree on. Registration, shape
// functions and kernels all read this one table.
//
//   HasteLstm:     wx, recurrent_kernel, h0, c0, mask, seed -> y, h, c, gates, h_in, c_in
//   HasteLstmGrad: recurrent_kernel, mask, seed, gates, h_in, c_in, dy, dh, dc -> dwx, dh0, dc0
#ifndef HASTE_FRAMEWORKS_TF_RNN_SIGNATURE_H_
#define HASTE_FRAMEWORKS_TF_RNN_SIGNATURE_H_

#include <stdint.h>

#include <array>
#include <string>
#include <vector>

#include "lib/haste/c_api.h"

namespace haste {
namespace tf {

constexpr int64_t kUnknown = -1;

// The C API passes shape functions and kernel constructors no data of ours, so that the index of
// the cell is a template argument of them. More than any build has; registration checks it.
constexpr int kMaxCells = 32;

struct Argument {
  std::string name;
  std::string dims;  // "NTKGH": a letter a dimension; a digit stands for itself
  std::string type;  // as an op definition spells it
  bool optional;     // a vector of no elements stands for "not given"
};

struct RnnSignature {
  std::string op;
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
};

// Where an argument stands, for a cell of `states` states. Arguments that are one for each
// state start at the index given.
struct ForwardInput {
  enum { kWx, kRecurrentKernel, kInitialStates };
  static int Mask(int states) { return kInitialStates + states; }
  static int Seed(int states) { return Mask(states) + 1; }
};
struct ForwardOutput {
  enum { kY, kFinalStates };
  static int Gates(int states) { return kFinalStates + states; }
  static int StatesIn(int states) { return Gates(states) + 1; }
};
struct BackwardInput {
  enum { kRecurrentKernel, kMask, kSeed, kGates, kStatesIn };
  static int Dy(int states) { return kStatesIn + states; }
  static int DFinalStates(int states) { return Dy(states) + 1; }
};
struct BackwardOutput {
  enum { kDwx, kDInitialStates };
};

RnnSignature ForwardSignature(const HasteCellInfo& cell);
RnnSignature BackwardSignature(const HasteCellInfo& cell);

// The sizes N, T, K, G, H as the arguments give them.
class Sizes {
 public:
  explicit Sizes(const HasteCellInfo& cell);

  // Takes the sizes that `shape` gives; kUnknown for a dimension that is not known. False, with
  // a sentence in *error, if it is not the shape that `argument` must have.
  bool Bind(const Argument& argument, const std::vector<int64_t>& shape, std::string* error);

  int64_t operator[](char letter) const { return size_[static_cast<unsigned char>(letter)].value; }
  std::vector<int64_t> Shape(const std::string& dims) const;

 private:
  struct Size {
    int64_t value = kUnknown;
    std::string source;  // what gave the value
  };
  std::string Expectation(const Argument& argument) const;

  std::array<Size, 128> size_;
};

std::string ShapeString(const std::vector<int64_t>& shape);

// True if an optional argument of this shape was left out.
inline bool IsAbsent(const Argument& argument, const std::vector<int64_t>& shape) {
  return argument.optional && shape.size() == 1 && shape[0] == 0;
}

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_RNN_SIGNATURE_H_
