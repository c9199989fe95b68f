// The arguments of a cell's ops, made from the C ABI's description of the cell.
//
//   HasteLstm:          wx, recurrent_kernel, h0, c0, mask, seed -> y, h, c, gates, h_in, c_in
//   HasteLstmLayer:     x, kernel, bias in place of wx, the others as above
//   HasteLstmInt8:      wx, recurrent_kernel (int8), recurrent_scale, h0, c0, mask -> y, h, c
//   HasteLstmLayerInt8: x, kernel (int8), kernel_scale, bias in place of wx, the others as above
//   HasteLstmGrad:      recurrent_kernel, mask, seed, gates, h_in, c_in, dy, dh, dc
//                       -> dwx, dh0, dc0
//   HasteLstmLayerGrad: x, kernel and those of HasteLstmGrad
//                       -> those of HasteLstmGrad, dx, dkernel, dbias, drecurrent_kernel
//
// [0] where it is left out: bias, initial states, mask, seed, and gradients of outputs.
#ifndef HASTE_FRAMEWORKS_OPS_RNN_SIGNATURE_H_
#define HASTE_FRAMEWORKS_OPS_RNN_SIGNATURE_H_

#include "frameworks/ops/signature.h"
#include "haste/c_api.h"

namespace haste {

// The C API passes no user data to shape functions and kernel constructors, so the index of the
// cell is a template argument. This limit is more than the number of cells; registration checks it.
constexpr int kMaxCells = 32;

// The ops of a cell. Those of a layer exist only for cells with HasLayer, those with int8 weights
// only for cells with HasInt8.
enum class Op { kForward, kLayer, kBackward, kLayerBackward, kInt8, kLayerInt8 };

constexpr int kAbsent = -1;

// The position of an argument or, among the outputs of the gradient, of its gradient. Of a group
// (one for each gate, extra, state or saved tensor) the first. kAbsent: not among these arguments.
struct Positions {
  int wx = kAbsent;
  int sequence = kAbsent;  // of a layer: x, then kernel and bias
  int kernel = kAbsent;
  int kernel_scale = kAbsent;  // of an int8 kernel
  int bias = kAbsent;
  int x = kAbsent;  // separate gates
  int q = kAbsent;  // of the gradient: dq
  int recurrent_kernel = kAbsent;
  int recurrent_scale = kAbsent;  // of an int8 recurrent_kernel
  int extras = kAbsent;
  int states = kAbsent;  // initial ones, final ones or their gradients
  int mask = kAbsent;
  int seed = kAbsent;
  int y = kAbsent;
  int gates = kAbsent;
  int products = kAbsent;
  int saved = kAbsent;
};

struct RnnSignature : Signature {
  Positions in, out;
};

// Made once; lives as long as the process. `cell` is one that haste_cell gives.
const RnnSignature& SignatureOf(Op op, const HasteCellInfo& cell);

// Saved tensors that do not depend on recurrent dropout.
int SavedWithoutDropout(const HasteCellInfo& cell);
// Whether there are ops with the products around the recurrence.
bool HasLayer(const HasteCellInfo& cell);
// Whether there are ops with int8 weights.
bool HasInt8(const HasteCellInfo& cell);

// With the number of gates.
Sizes CellSizes(const HasteCellInfo& cell);

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_RNN_SIGNATURE_H_
