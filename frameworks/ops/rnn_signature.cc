#include "frameworks/ops/rnn_signature.h"

#include <ctype.h>

#include <map>
#include <utility>

namespace haste {
namespace {

enum Presence { kRequired, kOptional };

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

// Appends the arguments of one cell to a list. Every function returns the position of the first.
class List {
 public:
  List(const HasteCellInfo& cell, std::string prefix, std::vector<Argument>* arguments)
      : cell_(cell), prefix_(std::move(prefix)), arguments_(*arguments) {}

  int One(const std::string& name, const char* dims, Presence presence, const char* type = "T") {
    arguments_.push_back({prefix_ + name, dims, type, presence == kOptional});
    return static_cast<int>(arguments_.size()) - 1;
  }

  int Each(const char* const* names, int count, const std::string& suffix, const char* dims,
           Presence presence) {
    int first = kAbsent;
    for (int i = 0; i < count; ++i) {
      const int position = One(names[i] + suffix, dims, presence);
      if (i == 0) first = position;
    }
    return first;
  }

  void Projected(Positions* at) {
    if (cell_.separate_gates) {
      at->x = Each(cell_.gate_names, cell_.gates, "", "NTKH", kRequired);
    } else {
      at->wx = One("wx", "NTKGH", kRequired);
    }
  }

  void Product(Presence presence, Positions* at) {
    at->sequence = One("x", "NTC", presence);
    at->kernel = One("kernel", "CKGH", presence);
  }
  void Int8Product(Positions* at) {
    at->sequence = One("x", "NTC", kRequired);
    at->kernel = One("kernel", "CKGH", kRequired, "int8");
    at->kernel_scale = One("kernel_scale", "KGH", kRequired, "float");
  }
  void Bias(Positions* at) { at->bias = One("bias", "KGH", kOptional); }

  void Extras(Positions* at) {
    for (int e = 0; e < cell_.extras; ++e) {
      const int position = One(cell_.extra_names[e], cell_.extra_dims[e], kRequired);
      if (e == 0) at->extras = position;
    }
  }

  void RecurrentKernel(Presence presence, Positions* at) {
    if (cell_.recurrence == HASTE_NONE) return;
    const char* dims = cell_.recurrence == HASTE_DENSE ? "KHGH" : "KGH";
    at->recurrent_kernel = One("recurrent_kernel", dims, presence);
  }

  void Int8Kernel(Positions* at) {
    at->recurrent_kernel = One("recurrent_kernel", "KHGH", kRequired, "int8");
    at->recurrent_scale = One("recurrent_scale", "KGH", kRequired, "float");
  }

  void Parameters(Positions* at) {
    RecurrentKernel(kRequired, at);
    Extras(at);
  }

  void States(const char* suffix, Presence presence, Positions* at) {
    at->states = Each(cell_.state_names, cell_.states, suffix, "NKH", presence);
  }

  void Mask(Positions* at) { at->mask = One("mask", "NT", kOptional, "bool"); }
  void MaskAndSeed(Positions* at) {
    Mask(at);
    at->seed = One("seed", "2", kOptional, "int64");
  }

  void Reserve(Presence presence, Positions* at) {
    if (!cell_.separate_gates) at->gates = One("gates", "NTKGH", presence);
    if (cell_.normalizes) at->products = One("products", "NTKGH", presence);
    const int always = SavedWithoutDropout(cell_);
    at->saved = Each(cell_.saved_names, always, "", "NTKH", presence);
    Each(cell_.saved_names + always, cell_.saved - always, "", "NTKH", kOptional);
  }

 private:
  const HasteCellInfo& cell_;
  const std::string prefix_;
  std::vector<Argument>& arguments_;
};

RnnSignature ForwardSignature(const HasteCellInfo& cell, bool layer) {
  RnnSignature signature;
  signature.op = OpName(cell.name) + (layer ? "Layer" : "");
  List in(cell, "", &signature.inputs);
  if (layer) {
    in.Product(kRequired, &signature.in);
    in.Bias(&signature.in);
  } else {
    in.Projected(&signature.in);
  }
  in.Parameters(&signature.in);
  in.States("0", kOptional, &signature.in);
  in.MaskAndSeed(&signature.in);
  List out(cell, "", &signature.outputs);
  signature.out.y = out.One("y", "NTKH", kRequired);
  out.States("", kRequired, &signature.out);
  out.Reserve(kOptional, &signature.out);
  return signature;
}

RnnSignature Int8Signature(const HasteCellInfo& cell, bool layer) {
  RnnSignature signature;
  signature.op = OpName(cell.name) + (layer ? "LayerInt8" : "Int8");
  List in(cell, "", &signature.inputs);
  if (layer) {
    in.Int8Product(&signature.in);
    in.Bias(&signature.in);
  } else {
    in.Projected(&signature.in);
  }
  in.Int8Kernel(&signature.in);
  in.Extras(&signature.in);
  in.States("0", kOptional, &signature.in);
  in.Mask(&signature.in);
  List out(cell, "", &signature.outputs);
  signature.out.y = out.One("y", "NTKH", kRequired);
  out.States("", kRequired, &signature.out);
  return signature;
}

RnnSignature BackwardSignature(const HasteCellInfo& cell, bool layer) {
  RnnSignature signature;
  signature.op = OpName(cell.name) + (layer ? "LayerGrad" : "Grad");
  List in(cell, "", &signature.inputs);
  if (layer) in.Product(kRequired, &signature.in);
  in.Parameters(&signature.in);
  in.MaskAndSeed(&signature.in);
  if (cell.separate_gates) in.Projected(&signature.in);
  in.Reserve(kRequired, &signature.in);
  List gradients(cell, "d", &signature.inputs);
  signature.in.y = gradients.One("y", "NTKH", kOptional);
  gradients.States("", kOptional, &signature.in);
  List out(cell, "d", &signature.outputs);
  out.Projected(&signature.out);
  if (cell.splits_gradient) signature.out.q = out.One("q", "NTKGH", kRequired);
  if (cell.recurrence == HASTE_DIAGONAL) out.RecurrentKernel(kRequired, &signature.out);
  out.Extras(&signature.out);
  out.States("0", kRequired, &signature.out);
  if (!layer) return signature;
  out.Product(kOptional, &signature.out);
  out.Bias(&signature.out);
  if (cell.recurrence == HASTE_DENSE) out.RecurrentKernel(kOptional, &signature.out);
  return signature;
}

RnnSignature Make(Op op, const HasteCellInfo& cell) {
  if (op == Op::kInt8 || op == Op::kLayerInt8) return Int8Signature(cell, op == Op::kLayerInt8);
  const bool layer = op == Op::kLayer || op == Op::kLayerBackward;
  const bool backward = op == Op::kBackward || op == Op::kLayerBackward;
  return backward ? BackwardSignature(cell, layer) : ForwardSignature(cell, layer);
}

}  // namespace

const RnnSignature& SignatureOf(Op op, const HasteCellInfo& cell) {
  using Key = std::pair<const HasteCellInfo*, Op>;
  static const auto* const all = [] {
    auto* made = new std::map<Key, RnnSignature>;
    for (int i = 0; i < haste_cell_count(); ++i) {
      for (Op each : {Op::kForward, Op::kLayer, Op::kBackward, Op::kLayerBackward, Op::kInt8,
                      Op::kLayerInt8}) {
        made->emplace(Key(haste_cell(i), each), Make(each, *haste_cell(i)));
      }
    }
    return made;
  }();
  return all->at(Key(&cell, op));
}

int SavedWithoutDropout(const HasteCellInfo& cell) {
  return cell.saved - (cell.state_bound == HASTE_BOUND_MEAN);
}

bool HasLayer(const HasteCellInfo& cell) { return !cell.separate_gates && !cell.normalizes; }

bool HasInt8(const HasteCellInfo& cell) { return cell.recurrence == HASTE_DENSE; }

Sizes CellSizes(const HasteCellInfo& cell) {
  Sizes sizes;
  sizes.Set('G', cell.gates, "the gates of ", cell.name);
  return sizes;
}

}  // namespace haste
