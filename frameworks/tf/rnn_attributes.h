// The attributes of an op, read and checked once, when TensorFlow constructs the kernel.
#ifndef HASTE_FRAMEWORKS_TF_RNN_ATTRIBUTES_H_
#define HASTE_FRAMEWORKS_TF_RNN_ATTRIBUTES_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "frameworks/tf/rnn_signature.h"
#include "frameworks/tf/tf_status.h"
#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

struct RnnAttributes {
  // All but the sizes and the two pointers, which Config sets.
  HasteRnnConfig config = HASTE_INIT(HasteRnnConfig);
  TF_DataType type = TF_FLOAT;
  std::string engine;
  std::vector<uint8_t> reverse;
  bool save = false;            // of forward
  std::vector<uint8_t> wanted;  // of a layer's gradient: a flag for each output from dx on
  bool draws = false;           // draws random numbers, so seed must be given

  bool Read(Op op, const HasteCellInfo& cell, HasteDevice device, TF_OpKernelConstruction* context,
            Status* status);

  // Points into this object.
  HasteRnnConfig Config(int64_t batch, int64_t time, int64_t lanes, int64_t hidden) const;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_RNN_ATTRIBUTES_H_
