// Weights that stay packed between calls: HastePackedWeights of the C ABI.
//
// The first call packs them into memory of the object, not into its workspace. Calls that begin
// before it ends wait for it.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "haste/c_api.h"

namespace haste {

struct Engine;

// What was packed, by which engine, and for which sizes.
struct PackedKey {
  bool operator==(const PackedKey& other) const {
    return engine == other.engine && R == other.R && W == other.W && lanes == other.lanes &&
           hidden == other.hidden && features == other.features &&
           weights_dtype == other.weights_dtype;
  }

  const Engine* engine;
  const void *R, *W;
  int64_t lanes, hidden;
  int64_t features;  // -1: without W
  int32_t weights_dtype;
};

// layer: of a walk that forms x·W + b itself, else nullptr.
inline PackedKey PackedKeyOf(const Engine* engine, const HasteRnnConfig& config,
                             const HasteRnnForwardArgs& args, const HasteLayerForwardArgs* layer) {
  const void* const W = layer == nullptr ? nullptr : layer->W;
  const int64_t features = layer == nullptr ? -1 : layer->features;
  return {engine, args.R, W, config.lanes, config.hidden, features, config.weights_dtype};
}

}  // namespace haste

struct HastePackedWeights {
 public:
  class Use;

  // Forgets what was packed. Calls that use it go on with it.
  void Clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    block_.reset();
    ++version_;
  }

  size_t bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return block_ == nullptr ? 0 : block_->bytes;
  }

 private:
  struct Block {
    Block(const haste::PackedKey& of, size_t size)
        : key(of), bytes((size + kAlignment - 1) / kAlignment * kAlignment) {
      memory = aligned_alloc(kAlignment, std::max(bytes, kAlignment));
      if (memory == nullptr) throw std::bad_alloc();
    }
    ~Block() { free(memory); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    static constexpr size_t kAlignment = 64;
    const haste::PackedKey key;
    const size_t bytes;
    void* memory;
  };

  mutable std::mutex mutex_;
  std::condition_variable left_;  // the call that fills a block
  bool filling_ = false;
  std::shared_ptr<Block> block_;
  int64_t version_ = 0;  // of the weights: Clear begins a new one
};

// One call's use of packed weights.
class HastePackedWeights::Use {
 public:
  // packed: may be nullptr. bytes(): of memory for what `key` says.
  template <class Bytes>
  Use(HastePackedWeights* packed, const haste::PackedKey& key, const Bytes& bytes)
      : packed_(packed) {
    if (packed == nullptr) return;
    {
      std::unique_lock<std::mutex> lock(packed->mutex_);
      packed->left_.wait(lock, [&] { return !packed->filling_; });
      version_ = packed->version_;
      if (packed->block_ != nullptr && packed->block_->key == key) {
        block_ = packed->block_;
        filled_ = true;
        return;
      }
      packed->filling_ = true;
    }
    try {
      block_ = std::make_shared<Block>(key, bytes());
    } catch (...) {
      Leave(nullptr);
      throw;
    }
  }
  ~Use() {
    if (packed_ != nullptr && !filled_) Leave(packs_done_ ? std::move(block_) : nullptr);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // nullptr: there is no object.
  void* memory() const { return block_ == nullptr ? nullptr : block_->memory; }
  // Whether the memory has the weights. If not, the call packs them there, and then says so.
  bool filled() const { return filled_; }
  void Filled() { packs_done_ = true; }

 private:
  // block: what the call has filled; nullptr: it has failed.
  void Leave(std::shared_ptr<Block> block) {
    {
      const std::lock_guard<std::mutex> lock(packed_->mutex_);
      packed_->filling_ = false;
      if (block != nullptr && version_ == packed_->version_) packed_->block_ = std::move(block);
    }
    packed_->left_.notify_all();
  }

  HastePackedWeights* const packed_;
  std::shared_ptr<Block> block_;
  bool filled_ = false, packs_done_ = false;
  int64_t version_ = 0;
};
