// Weights that stay packed between calls, owned.
#ifndef HASTE_LIB_HASTE_PACKED_WEIGHTS_H_
#define HASTE_LIB_HASTE_PACKED_WEIGHTS_H_

#include <stddef.h>

#include "haste/c_api.h"

namespace haste {

// One for each layer, for ForwardArgs::set_packed: see HastePackedWeights of haste/c_api.h. Without
// memory for it get() is nullptr, and calls pack as they do without one.
class PackedWeights {
 public:
  PackedWeights() { haste_packed_weights_create(&packed_, nullptr); }
  ~PackedWeights() { haste_packed_weights_free(packed_, nullptr); }
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  HastePackedWeights* get() const { return packed_; }
  // After a weight has changed in its place.
  void Clear() {
    if (packed_ != nullptr) haste_packed_weights_clear(packed_, nullptr);
  }
  // Memory that it holds.
  size_t bytes() const {
    size_t bytes = 0;
    if (packed_ != nullptr) haste_packed_weights_bytes(packed_, &bytes, nullptr);
    return bytes;
  }

 private:
  HastePackedWeights* packed_ = nullptr;
};

}  // namespace haste

#endif  // HASTE_LIB_HASTE_PACKED_WEIGHTS_H_
