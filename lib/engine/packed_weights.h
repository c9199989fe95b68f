// Weights that stay packed between calls: HastePackedWeights of the C ABI.
//
// The first call packs them into memory of the object, not into its workspace. Calls that begin
// before it ends wait for it. In a forked child there may be nobody who ends it: the object begins
// anew there, and what it had is never freed.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "haste/c_api.h"
#include "lib/base/fork.h"

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

  HastePackedWeights() : state_(new State) {}
  ~HastePackedWeights() {
    State* const state = state_.load(std::memory_order_acquire);
    if (state->generation == haste::ForkGeneration()) delete state;
  }
  HastePackedWeights(const HastePackedWeights&) = delete;
  HastePackedWeights& operator=(const HastePackedWeights&) = delete;

  // Forgets what was packed. Calls that use it go on with it.
  void Clear() {
    State& now = Now();
    const std::lock_guard<std::mutex> lock(now.mutex);
    now.block.reset();
    ++now.version;
  }

  size_t bytes() const {
    State& now = Now();
    const std::lock_guard<std::mutex> lock(now.mutex);
    return now.block == nullptr ? 0 : now.block->bytes;
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

  struct State {
    const int generation = haste::ForkGeneration();
    std::mutex mutex;
    std::condition_variable left;  // the call that fills a block
    bool filling = false;
    std::shared_ptr<Block> block;
    int64_t version = 0;  // of the weights: Clear begins a new one
  };

  // That of this process.
  State& Now() const {
    State* state = state_.load(std::memory_order_acquire);
    if (state->generation == haste::ForkGeneration()) return *state;
    auto anew = std::make_unique<State>();
    if (state_.compare_exchange_strong(state, anew.get())) return *anew.release();
    return *state;  // of another thread of the child
  }

  mutable std::atomic<State*> state_;
};

// One call's use of packed weights.
class HastePackedWeights::Use {
 public:
  // packed: may be nullptr. bytes(): of memory for what `key` says.
  template <class Bytes>
  Use(HastePackedWeights* packed, const haste::PackedKey& key, const Bytes& bytes)
      : state_(packed == nullptr ? nullptr : &packed->Now()) {
    if (packed == nullptr) return;
    {
      std::unique_lock<std::mutex> lock(state_->mutex);
      state_->left.wait(lock, [&] { return !state_->filling; });
      version_ = state_->version;
      if (state_->block != nullptr && state_->block->key == key) {
        block_ = state_->block;
        filled_ = true;
        return;
      }
      state_->filling = true;
    }
    try {
      block_ = std::make_shared<Block>(key, bytes());
    } catch (...) {
      Leave(nullptr);
      throw;
    }
  }
  ~Use() {
    if (state_ != nullptr && !filled_) Leave(packs_done_ ? std::move(block_) : nullptr);
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
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->filling = false;
      if (block != nullptr && version_ == state_->version) state_->block = std::move(block);
    }
    state_->left.notify_all();
  }

  State* const state_;
  std::shared_ptr<Block> block_;
  bool filled_ = false, packs_done_ = false;
  int64_t version_ = 0;
};
