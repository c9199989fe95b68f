// The arguments of an op, and which of their dimensions must agree. Registration, shape functions
// and kernels all read this table.
#ifndef HASTE_FRAMEWORKS_OPS_SIGNATURE_H_
#define HASTE_FRAMEWORKS_OPS_SIGNATURE_H_

#include <stdint.h>

#include <array>
#include <string>
#include <vector>

namespace haste {

constexpr int64_t kUnknown = -1;

struct Argument {
  std::string name;
  std::string dims;  // "NTKGH": a letter a dimension; a digit stands for itself
  std::string type;  // as an op definition spells it
  bool optional;     // a vector of no elements stands for "not given"
};

struct Signature {
  std::string op;
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
};

// The sizes that the letters stand for, as the arguments give them.
//
// An object of no more than a few hundred bytes, which allocates nothing: a kernel makes one in
// each call. Names of arguments must outlive it.
class Sizes {
 public:
  // Sets a size before any argument. Errors name `what` `of` as its origin.
  void Set(char letter, int64_t value, const char* what, const char* of);

  // Takes the sizes from `shape`; kUnknown is a dimension that is not known. Returns false and sets
  // *error if `argument` must have another shape.
  bool Bind(const Argument& argument, const std::vector<int64_t>& shape, std::string* error);

  int64_t operator[](char letter) const { return Of(letter).value; }
  std::vector<int64_t> Shape(const std::string& dims) const;

 private:
  struct Size {
    int64_t value = kUnknown;
    const char* source[2] = {"", ""};  // what gave the value
  };
  Size Of(char letter) const;
  std::string Expectation(const Argument& argument) const;

  std::array<Size, 'Z' - 'A' + 1> size_;
};

// Takes the sizes from `shapes`, one for each input at least. Optional ones are checked last, so
// that a disagreement is reported as their error.
bool BindAll(const Signature& signature, const std::vector<std::vector<int64_t>>& shapes,
             Sizes* sizes, std::string* error);

std::string ShapeString(const std::vector<int64_t>& shape);

// True if an optional argument of this shape was left out.
inline bool IsAbsent(const Argument& argument, const std::vector<int64_t>& shape) {
  return argument.optional && shape.size() == 1 && shape[0] == 0;
}

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_SIGNATURE_H_
