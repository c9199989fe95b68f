// Weights of inference that stay packed between calls of an op.
//
// An entry refers to the buffers of R and W. TensorFlow does not write to a buffer that more than
// one tensor refers to: an assignment gives a variable another buffer, and an optimizer copies the
// value first. So as long as calls bring the buffers that an entry refers to, they have not
// changed. That holds for variables (keep_packed of the ops says that they are), not for tensors
// whose memory belongs to someone else, such as an array that was fed.
#ifndef HASTE_FRAMEWORKS_TF_C_API_KEPT_WEIGHTS_H_
#define HASTE_FRAMEWORKS_TF_C_API_KEPT_WEIGHTS_H_

#include <stddef.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "frameworks/ops/signature.h"
#include "frameworks/tf/c_api/tf_status.h"
#include "haste/c_api.h"
#include "haste/packed_weights.h"

namespace haste {
namespace tf {

class KeptWeights {
 public:
  // An op and the addresses of its large weights.
  using Key = std::pair<const Signature*, std::vector<const void*>>;
  // Packed weights, and what they were made of.
  struct Entry {
    std::vector<Tensor> large;
    std::string small;  // contents of biases and scales, which may be computed anew for each call
    PackedWeights packed;
  };

  // Of the process. It outlives TensorFlow's threads.
  static KeptWeights& Instance();

  // Those of `key` with these small ones; nullptr on the first call with them, which only notes
  // them: weights that are used once are not worth memory. refer() gives tensors that refer to the
  // large ones.
  template <class Refer>
  std::shared_ptr<Entry> Find(const Key& key, const std::string& small, const Refer& refer);

  // Before a training step: an optimizer would have to copy a weight that an entry refers to.
  void Forget(const void* large);

  // Entries that are there, and memory of what is packed in them.
  std::pair<size_t, size_t> Held();

 private:
  // Drops entries whose buffers nothing else refers to: variables that have another one by now, or
  // are gone.
  void Sweep();

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
};

template <class Refer>
std::shared_ptr<KeptWeights::Entry> KeptWeights::Find(const Key& key, const std::string& small,
                                                      const Refer& refer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second->small == small) return found->second;
  Sweep();
  auto entry = std::make_shared<Entry>();
  entry->large = refer();
  entry->small = small;
  entries_[key] = std::move(entry);
  return nullptr;
}

}  // namespace tf
}  // namespace haste

extern "C" {
// KeptWeights::Held of the process.
HASTE_API void haste_tf_kept_weights(size_t* entries, size_t* bytes);
}

#endif  // HASTE_FRAMEWORKS_TF_C_API_KEPT_WEIGHTS_H_
