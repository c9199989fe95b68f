#include "frameworks/tf/rnn_signature.h"

#include <ctype.h>

namespace haste {
namespace tf {
namespace {

// "layer_norm_lstm" -> "HasteLayerNormLstm"
std::string OpName(const std::string& cell) {
  std::string name = "Haste";
  bool capital = true;
  for (char c : cell) {
    if (c == '_') {
      capital = true;
    } else {
      name += capital ? static_cast<char>(toupper(c)) : c;
      capital = false;
    }
  }
  return name;
}

void AddStates(const HasteCellInfo& cell, const std::string& prefix, const std::string& suffix,
               const std::string& dims, bool optional, std::vector<Argument>* arguments) {
  for (int s = 0; s < cell.states; ++s) {
    arguments->push_back({prefix + cell.state_names[s] + suffix, dims, "T", optional});
  }
}

std::string Join(const std::string& dims) {
  std::string text;
  for (char c : dims) text += (text.empty() ? "" : ", ") + std::string(1, c);
  return "[" + text + "]";
}

}  // namespace

RnnSignature ForwardSignature(const HasteCellInfo& cell) {
  RnnSignature signature{OpName(cell.name), {}, {}};
  auto& in = signature.inputs;
  in.push_back({"wx", "NTKGH", "T", false});
  in.push_back({"recurrent_kernel", "KHGH", "T", false});
  AddStates(cell, "", "0", "NKH", false, &in);
  in.push_back({"mask", "NT", "bool", true});
  in.push_back({"seed", "2", "int64", true});
  auto& out = signature.outputs;
  out.push_back({"y", "NTKH", "T", false});
  AddStates(cell, "", "", "NKH", false, &out);
  out.push_back({"gates", "NTKGH", "T", true});
  AddStates(cell, "", "_in", "NTKH", true, &out);
  return signature;
}

RnnSignature BackwardSignature(const HasteCellInfo& cell) {
  RnnSignature signature{OpName(cell.name) + "Grad", {}, {}};
  auto& in = signature.inputs;
  in.push_back({"recurrent_kernel", "KHGH", "T", false});
  in.push_back({"mask", "NT", "bool", true});
  in.push_back({"seed", "2", "int64", true});
  in.push_back({"gates", "NTKGH", "T", false});
  AddStates(cell, "", "_in", "NTKH", false, &in);
  in.push_back({"dy", "NTKH", "T", true});
  AddStates(cell, "d", "", "NKH", true, &in);
  auto& out = signature.outputs;
  out.push_back({"dwx", "NTKGH", "T", false});
  AddStates(cell, "d", "0", "NKH", false, &out);
  return signature;
}

Sizes::Sizes(const HasteCellInfo& cell) {
  size_['G'] = {cell.gates, std::string("the gates of ") + cell.name};
  for (char digit = '0'; digit <= '9'; ++digit) {
    size_[static_cast<unsigned char>(digit)] = {digit - '0', ""};
  }
}

bool Sizes::Bind(const Argument& argument, const std::vector<int64_t>& shape, std::string* error) {
  if (IsAbsent(argument, shape)) return true;
  const std::array<Size, 128> before = size_;
  bool fits = shape.size() == argument.dims.size();
  std::string why;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    if (shape[i] == kUnknown) continue;
    const char letter = argument.dims[i];
    Size& size = size_[static_cast<unsigned char>(letter)];
    if (size.value == kUnknown) {
      size = {shape[i], argument.name};
      fits = shape[i] > 0 || (letter != 'K' && letter != 'H');
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
  size_ = before;
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

std::string ShapeString(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + (size == kUnknown ? "?" : std::to_string(size));
  }
  return "[" + text + "]";
}

}  // namespace tf
}  // namespace haste
