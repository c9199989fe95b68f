// One op of a cell with its options, whatever framework runs it.
#ifndef HASTE_FRAMEWORKS_OPS_RNN_OP_H_
#define HASTE_FRAMEWORKS_OPS_RNN_OP_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "frameworks/ops/rnn_signature.h"
#include "haste/c_api.h"

namespace haste {

// What a framework's attributes say.
struct RnnOptions {
  // All but the sizes and the two pointers, which Config sets.
  HasteRnnConfig config = HASTE_INIT(HasteRnnConfig);
  std::string engine;
  std::vector<uint8_t> reverse;
  bool save = false;  // of forward
  // Of forward: the weights are those of variables, which may stay packed between calls.
  bool keep_packed = false;
  std::vector<uint8_t> wanted;  // of a layer's gradient: a flag for each output from dx on

  // Whether random numbers are drawn, so that seed must be given.
  bool Draws(const HasteCellInfo& cell) const {
    bool some = config.recurrent_dropout > 0.0f;
    for (int s = 0; s < cell.states; ++s) some |= config.zoneout[s] > 0.0f;
    return some && config.training != 0;
  }

  // Saved tensors that forward leaves if it saves.
  int Saved(const HasteCellInfo& cell) const {
    const bool drops = config.recurrent_dropout > 0.0f && config.training != 0;
    return drops ? cell.saved : SavedWithoutDropout(cell);
  }

  // Points into this object.
  HasteRnnConfig Config(int64_t batch, int64_t time, int64_t lanes, int64_t hidden) const {
    HasteRnnConfig result = config;
    result.engine = engine.c_str();
    result.reverse = reverse.data();
    result.batch = batch;
    result.time = time;
    result.lanes = lanes;
    result.hidden = hidden;
    return result;
  }
};

struct RnnOp {
  RnnOp(Op of_kind, const HasteCellInfo& of_cell)
      : kind(of_kind), cell(&of_cell), signature(SignatureOf(of_kind, of_cell)) {}

  bool layer() const {
    return kind == Op::kLayer || kind == Op::kLayerBackward || kind == Op::kLayerInt8;
  }
  bool int8() const { return kind == Op::kInt8 || kind == Op::kLayerInt8; }
  bool backward() const { return kind == Op::kBackward || kind == Op::kLayerBackward; }
  HasteDevice device() const { return static_cast<HasteDevice>(options.config.device); }
  // Outputs of a layer's gradient that may be left out: their number, from dx on.
  size_t optional_gradients() const {
    const int first = kind == Op::kLayerBackward ? signature.out.sequence : kAbsent;
    return first == kAbsent ? 0 : signature.outputs.size() - first;
  }

  Op kind;
  const HasteCellInfo* cell;
  const RnnSignature& signature;
  RnnOptions options;
};

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_RNN_OP_H_
