#include "frameworks/tf/c_api/kept_weights.h"

#include <algorithm>
#include <tuple>

namespace haste {
namespace tf {

KeptWeights& KeptWeights::Instance() {
  static KeptWeights* const instance = new KeptWeights;
  return *instance;
}

void KeptWeights::Forget(const void* large) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const std::vector<const void*>& of = entry->first.second;
    entry = std::find(of.begin(), of.end(), large) == of.end() ? std::next(entry)
                                                               : entries_.erase(entry);
  }
}

void KeptWeights::Sweep() {
  const auto only_here = [](Tensor& tensor) {
    // What TensorFlow lets move has no other reference.
    TF_Tensor* const moved = TF_TensorMaybeMove(tensor.get());
    if (moved == nullptr) return false;
    tensor.release();
    tensor.reset(moved);
    return true;
  };
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    std::vector<Tensor>& large = entry->second->large;
    entry = std::any_of(large.begin(), large.end(), only_here) ? entries_.erase(entry)
                                                               : std::next(entry);
  }
}

std::pair<size_t, size_t> KeptWeights::Held() {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry->packed.bytes();
  return {entries_.size(), bytes};
}

}  // namespace tf
}  // namespace haste

extern "C" void haste_tf_kept_weights(size_t* entries, size_t* bytes) {
  std::tie(*entries, *bytes) = haste::tf::KeptWeights::Instance().Held();
}
