// Op definitions and shape functions of every cell.
#include <stdio.h>

#include <initializer_list>
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

// own: attributes that the op has and others of the cell do not.
template <int kCell, Op kOp>
void RegisterOpOf(std::vector<const char*> attributes, std::initializer_list<const char*> own) {
  attributes.insert(attributes.end(), own);
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
  // The weights are those of variables: a CPU may keep them packed until they change.
  const char* const keep_packed = "keep_packed: bool = false";
  if (HasInt8(cell)) {
    RegisterOpOf<kCell, Op::kInt8>(attributes, {keep_packed});
    if (HasLayer(cell)) RegisterOpOf<kCell, Op::kLayerInt8>(attributes, {keep_packed});
  }
  for (const char* more :
       {"recurrent_dropout: float = 0.0", "training: bool = false", "allow_tf32: bool = false"}) {
    attributes.push_back(more);
  }
  const char* const save = "save: bool = false";
  RegisterOpOf<kCell, Op::kForward>(attributes, {save, keep_packed});
  RegisterOpOf<kCell, Op::kBackward>(attributes, {});
  if (!HasLayer(cell)) return;
  RegisterOpOf<kCell, Op::kLayer>(attributes, {save, keep_packed});
  // A flag for each output from dx on: whether to compute it or leave it empty.
  RegisterOpOf<kCell, Op::kLayerBackward>(attributes, {"wanted: list(bool)"});
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
