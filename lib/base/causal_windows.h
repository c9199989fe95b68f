// Which steps of a walk a convolution over time reads (haste_windows). Indices only, for the CPU
// and for CUDA. Masked steps are skipped: a window holds the latest unmasked inputs.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/base/per_target.h"

namespace haste {

// The walk of one row of the batch.
class WindowWalk {
 public:
  static constexpr int64_t kNone = -1;  // no step

  template <class Args>  // HasteWindows or HasteWindowsGrad
  HASTE_FN WindowWalk(const Args& args, int64_t row)
      : mask_(args.mask == nullptr ? nullptr : args.mask + row * args.time),
        time_(args.time),
        window_(args.window),
        onward_(args.reverse ? -1 : 1) {}

  HASTE_FN bool IsLive(int64_t t) const { return mask_ == nullptr || mask_[t] != 0; }
  HASTE_FN int64_t First() const { return Live(onward_ > 0 ? 0 : time_ - 1, onward_); }
  HASTE_FN int64_t Last() const { return Live(onward_ > 0 ? time_ - 1 : 0, -onward_); }

  // Calls place(k, t, b) for places k, k - 1 … 0 of a window whose place k holds step t (kNone: no
  // step). A place holds x of step t or, where t is kNone, row b of `before`.
  template <class Place>
  HASTE_FN void Backwards(int64_t k, int64_t t, const Place& place) const {
    for (int64_t b = window_ - 2; k >= 0; --k) {
      place(k, t, b);
      if (t == kNone) {
        --b;
      } else {
        t = Live(t - onward_, -onward_);
      }
    }
  }

  // Calls place(k, t) for every place that holds the same input as place k of step t's window
  // (kNone: no step): place k of step t, place k - 1 of the next step, …, and with kNone a place of
  // `after`.
  template <class Place>
  HASTE_FN void Onwards(int64_t k, int64_t t, const Place& place) const {
    for (; k >= 0; --k) {
      place(k, t);
      if (t == kNone) return;
      t = Live(t + onward_, onward_);
    }
  }

 private:
  HASTE_FN int64_t Live(int64_t t, int64_t by) const {
    while (t >= 0 && t < time_) {
      if (IsLive(t)) return t;
      t += by;
    }
    return kNone;
  }

  const uint8_t* mask_;
  int64_t time_, window_, onward_;
};

}  // namespace haste
