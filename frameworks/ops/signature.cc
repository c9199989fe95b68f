#include "frameworks/ops/signature.h"

#include <string.h>

namespace haste {
namespace {

// Sizes that must be at least 1: lanes, hidden units, features.
constexpr char kNonEmpty[] = "KHF";

std::string Join(const std::string& dims) {
  std::string text;
  for (char c : dims) text += (text.empty() ? "" : ", ") + std::string(1, c);
  return "[" + text + "]";
}

}  // namespace

Sizes::Sizes() {
  for (char digit = '0'; digit <= '9'; ++digit) Set(digit, digit - '0', "");
}

void Sizes::Set(char letter, int64_t value, const std::string& source) {
  size_[static_cast<unsigned char>(letter)] = {value, source};
}

bool Sizes::Bind(const Argument& argument, const std::vector<int64_t>& shape, std::string* error) {
  if (IsAbsent(argument, shape)) return true;
  std::vector<char> learnt;
  bool fits = shape.size() == argument.dims.size();
  std::string why;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    if (shape[i] == kUnknown) continue;
    const char letter = argument.dims[i];
    Size& size = size_[static_cast<unsigned char>(letter)];
    if (size.value == kUnknown) {
      size = {shape[i], argument.name};
      learnt.push_back(letter);
      fits = shape[i] > 0 || strchr(kNonEmpty, letter) == nullptr;
      if (!fits) why = std::string(1, letter) + " must be at least 1";
    } else if (size.value != shape[i]) {
      fits = false;
      if (!size.source.empty()) {
        why = std::string(1, letter) + " = " + std::to_string(size.value) + " comes from " +
              size.source;
      }
    }
  }
  if (fits) return true;
  for (char letter : learnt) size_[static_cast<unsigned char>(letter)] = Size();
  *error = argument.name + " must be " + Expectation(argument) + ", but has shape " +
           ShapeString(shape) + (why.empty() ? "" : "; " + why);
  return false;
}

// "[K, H, G, H] = [1, 8, 4, 8] or empty"
std::string Sizes::Expectation(const Argument& argument) const {
  std::string text = Join(argument.dims);
  const std::string numbers = ShapeString(Shape(argument.dims));
  if (numbers != text) text += " = " + numbers;
  return text + (argument.optional ? " or empty" : "");
}

std::vector<int64_t> Sizes::Shape(const std::string& dims) const {
  std::vector<int64_t> shape;
  for (char letter : dims) shape.push_back((*this)[letter]);
  return shape;
}

bool BindAll(const Signature& signature, const std::vector<std::vector<int64_t>>& shapes,
             Sizes* sizes, std::string* error) {
  for (bool optional : {false, true}) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Argument& argument = signature.inputs[i];
      if (argument.optional == optional && !sizes->Bind(argument, shapes[i], error)) return false;
    }
  }
  return true;
}

std::string ShapeString(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + (size == kUnknown ? "?" : std::to_string(size));
  }
  return "[" + text + "]";
}

}  // namespace haste
