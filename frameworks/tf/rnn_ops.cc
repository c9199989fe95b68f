// Op definitions and shape functions of every cell.
#include <stdio.h>

#include <string>
#include <utility>
#include <vector>

#include "frameworks/tf/rnn_signature.h"
#include "frameworks/tf/tf_status.h"
#include "tensorflow/c/ops.h"

namespace haste {
namespace tf {
namespace {

bool KnownShape(TF_ShapeInferenceContext* context, TF_ShapeHandle* handle,
                std::vector<int64_t>* shape) {
  if (!TF_ShapeInferenceContextRankKnown(context, handle)) return false;
  const int64_t rank = TF_ShapeInferenceContextRank(context, handle);
  for (int64_t i = 0; i < rank; ++i) {
    DimensionHandle dim(TF_NewDimensionHandle());
    TF_ShapeInferenceContextDim(context, handle, i, dim.get());
    shape->push_back(TF_DimensionHandleValueKnown(dim.get()) ? TF_DimensionHandleValue(dim.get())
                                                             : kUnknown);
  }
  return true;
}

void SetOutput(TF_ShapeInferenceContext* context, int index, const std::vector<int64_t>& shape,
               TF_Status* status) {
  ShapeHandle all(TF_ShapeInferenceContextScalar(context));
  for (int64_t size : shape) {
    // The size is unsigned here, and yet -1 is how it spells an unknown dimension.
    ShapeHandle one(TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(size)));
    ShapeHandle joined(TF_NewShapeHandle());
    TF_ShapeInferenceContextConcatenateShapes(context, all.get(), one.get(), joined.get(), status);
    if (TF_GetCode(status) != TF_OK) return;
    all = std::move(joined);
  }
  TF_ShapeInferenceContextSetOutput(context, index, all.get(), status);
}

void InferShapes(const HasteCellInfo& cell, const RnnSignature& signature,
                 TF_ShapeInferenceContext* context, TF_Status* status) {
  Sizes sizes(cell);
  // Optional arguments come last, so that an error blames them and not what they disagree with.
  for (bool optional : {false, true}) {
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      if (signature.inputs[i].optional != optional) continue;
      ShapeHandle handle(TF_NewShapeHandle());
      TF_ShapeInferenceContextGetInput(context, static_cast<int>(i), handle.get(), status);
      if (TF_GetCode(status) != TF_OK) return;
      std::vector<int64_t> shape;
      if (!KnownShape(context, handle.get(), &shape)) continue;
      // A vector of unknown length may be one that was left out.
      if (optional && shape.size() == 1 && shape[0] == kUnknown) continue;
      std::string error;
      if (!sizes.Bind(signature.inputs[i], shape, &error)) {
        TF_SetStatus(status, TF_INVALID_ARGUMENT, error.c_str());
        return;
      }
    }
  }
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    // The reserve is empty or not as `save` says, which the C API does not show us here.
    if (signature.outputs[i].optional) continue;
    if (TF_GetCode(status) != TF_OK) return;
    SetOutput(context, static_cast<int>(i), sizes.Shape(signature.outputs[i].dims), status);
  }
}

template <int kCell>
void ForwardShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const HasteCellInfo& cell = *haste_cell(kCell);
  static const RnnSignature* const signature = new RnnSignature(ForwardSignature(cell));
  InferShapes(cell, *signature, context, status);
}

template <int kCell>
void BackwardShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const HasteCellInfo& cell = *haste_cell(kCell);
  static const RnnSignature* const signature = new RnnSignature(BackwardSignature(cell));
  InferShapes(cell, *signature, context, status);
}

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

void RegisterOp(const RnnSignature& signature, const std::vector<const char*>& attributes,
                ShapeFunction shapes) {
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(signature.op.c_str());
  TF_OpDefinitionBuilderAddAttr(builder, "T: {half, bfloat16, float, double}");
  for (const char* attribute : attributes) TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const Argument& a : signature.inputs) {
    TF_OpDefinitionBuilderAddInput(builder, (a.name + ": " + a.type).c_str());
  }
  for (const Argument& a : signature.outputs) {
    TF_OpDefinitionBuilderAddOutput(builder, (a.name + ": " + a.type).c_str());
  }
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes);
  Status status;
  TF_RegisterOpDefinition(builder, status.get());
  if (!status.ok()) {
    fprintf(stderr, "haste: cannot register %s: %s\n", signature.op.c_str(),
            TF_Message(status.get()));
  }
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
      "recurrent_dropout: float = 0.0",
      "training: bool = false",
      "zero_output_for_mask: bool = false",
      "engine: string = 'auto'",
  };
  RegisterOp(BackwardSignature(cell), attributes, BackwardShapes<kCell>);
  attributes.push_back("save: bool = false");
  RegisterOp(ForwardSignature(cell), attributes, ForwardShapes<kCell>);
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
