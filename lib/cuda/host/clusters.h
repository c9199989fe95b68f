// Which thread-block clusters a GPU can hold, by a query for each size.
#pragma once

#include <algorithm>

#include "lib/plan/plan.h"

namespace haste {

// query(size, &count) returns false if it fails. That counts as no clusters of this size and says
// nothing about other sizes: some GPUs have none of more than eight blocks, and parts of a GPU have
// fewer. multiprocessors: how many there are for all blocks of all clusters.
template <class Query>
void CountClusters(int multiprocessors, const Query& query, int (&clusters)[kMaxCluster + 1]) {
  clusters[0] = clusters[1] = 0;
  for (int size = 2; size <= kMaxCluster; ++size) {
    int count = 0;
    const bool answered = query(size, &count);
    clusters[size] = answered ? std::max(0, std::min(count, multiprocessors / size)) : 0;
  }
}

// Limits the properties to `most` multiprocessors, and to the clusters that these hold in any case:
// in proportion to the multiprocessors, and none of more than eight blocks, which not every part of
// a GPU has.
inline void LimitMultiprocessors(int most, CudaProperties* properties) {
  const int all = properties->multiprocessors;
  if (most >= all) return;
  for (int size = 2; size <= kMaxCluster; ++size) {
    int& count = properties->clusters[size];
    count = size > 8 ? 0 : static_cast<int>(int64_t{count} * most / all);
  }
  properties->multiprocessors = most;
}

}  // namespace haste
