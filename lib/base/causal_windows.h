// Which steps of a walk a convolution over time sees (haste_windows): the indices alone, for the
// CPU and CUDA alike. A masked step is not there.
#ifndef HASTE_LIB_BASE_CAUSAL_WINDOWS_H_
#define HASTE_LIB_BASE_CAUSAL_WINDOWS_H_

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

  // Calls place(k, t, b) for the last places of a window, from place k down to 0, where step t is
  // in place k (kNone: none was walked). What it holds is x of step t, or `before` of index b where
  // t is kNone.
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

  // Calls place(k, t) for all that see what step t (kNone: none) has in place k of its window:
  // place k of that of step t, k - 1 of the next, …; at last, with kNone, place k of `after`.
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

#endif  // HASTE_LIB_BASE_CAUSAL_WINDOWS_H_
