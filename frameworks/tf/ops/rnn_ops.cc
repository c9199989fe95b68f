// Op definitions and shape functions of every cell.
#include <stdio.h>

#include <utility>
#include <vector>

#include "frameworks/ops/rnn_signature.h"
#include "frameworks/tf/c_api/op_registry.h"

namespace haste {
namespace tf {
namespace {

template <int kCell, Op kOp>
void Shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const HasteCellInfo& cell = *haste_cell(kCell);
  InferShapes(SignatureOf(kOp, cell), CellSizes(cell), context, status);
}

template <int kCell, Op kOp>
void RegisterOpOf(std::vector<const char*> attributes, const char* own) {
  if (own != nullptr) attributes.push_back(own);
  RegisterOp(SignatureOf(kOp, *haste_cell(kCell)), attributes, Shapes<kCell, kOp>);
}

template <int kCell>
void RegisterCell() {
  if (kCell >= haste_cell_count()) return;
  const HasteCellInfo& cell = *haste_cell(kCell);
  std::vector<const char*> attributes = {
      "reverse: list(bool)",
      "activation: string = 'tanh'",
      "recurrent_activation: string = 'sigmoid'",
      "zoneout: list(float)",
      "zero_output_for_mask: bool = false",
      "engine: string = 'auto'",
  };
  if (cell.normalizes) attributes.push_back("epsilon: float = 1e-5");
  if (HasInt8(cell)) {
    RegisterOpOf<kCell, Op::kInt8>(attributes, nullptr);
    if (HasLayer(cell)) RegisterOpOf<kCell, Op::kLayerInt8>(attributes, nullptr);
  }
  for (const char* more :
       {"recurrent_dropout: float = 0.0", "training: bool = false", "allow_tf32: bool = false"}) {
    attributes.push_back(more);
  }
  const char* const save = "save: bool = false";
  RegisterOpOf<kCell, Op::kForward>(attributes, save);
  RegisterOpOf<kCell, Op::kBackward>(attributes, nullptr);
  if (!HasLayer(cell)) return;
  RegisterOpOf<kCell, Op::kLayer>(attributes, save);
  // A flag for each output from dx on: whether to compute it or leave it empty.
  RegisterOpOf<kCell, Op::kLayerBackward>(attributes, "wanted: list(bool)");
}

template <int... kCell>
bool Register(std::integer_sequence<int, kCell...>) {
  if (haste_cell_count() > kMaxCells) {
    fprintf(stderr, "haste: kMaxCells must be raised to %d\n", haste_cell_count());
  }
  (RegisterCell<kCell>(), ...);
  return true;
}

const bool registered = Register(std::make_integer_sequence<int, kMaxCells>());

}  // namespace
}  // namespace tf
}  // namespace haste
