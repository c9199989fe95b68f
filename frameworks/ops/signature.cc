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

void Sizes::Set(char letter, int64_t value, const char* what, const char* of) {
  size_[letter - 'A'] = {value, {what, of}};
}

Sizes::Size Sizes::Of(char letter) const {
  if (letter >= 'A') return size_[letter - 'A'];
  Size digit;
  digit.value = letter - '0';
  return digit;
}

bool Sizes::Bind(const Argument& argument, const std::vector<int64_t>& shape, std::string* error) {
  if (IsAbsent(argument, shape)) return true;
  std::string learnt;
  bool fits = shape.size() == argument.dims.size();
  std::string why;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    if (shape[i] == kUnknown) continue;
    const char letter = argument.dims[i];
    const Size size = Of(letter);
    if (size.value == kUnknown) {
      Set(letter, shape[i], "", argument.name.c_str());
      learnt.push_back(letter);
      fits = shape[i] > 0 || strchr(kNonEmpty, letter) == nullptr;
      if (!fits) why = std::string(1, letter) + " must be at least 1";
    } else if (size.value != shape[i]) {
      fits = false;
      if (*size.source[1] != 0) {
        why = std::string(1, letter) + " = " + std::to_string(size.value) + " comes from " +
              size.source[0] + size.source[1];
      }
    }
  }
  if (fits) return true;
  for (char letter : learnt) size_[letter - 'A'] = Size();
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
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
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
