// Which thread-block clusters a GPU has, by asking it of each size.
#ifndef HASTE_LIB_CUDA_HOST_CLUSTERS_H_
#define HASTE_LIB_CUDA_HOST_CLUSTERS_H_

#include <algorithm>

#include "lib/plan/plan.h"

namespace haste {

// query(size, &count): false if the GPU does not answer. That means no clusters of this size, and
// nothing about other sizes: some GPUs have none of more than eight blocks, parts of a GPU fewer.
// multiprocessors: shared by all blocks of all clusters.
template <class Query>
void CountClusters(int multiprocessors, const Query& query, int (&clusters)[kMaxCluster + 1]) {
  clusters[0] = clusters[1] = 0;
  for (int size = 2; size <= kMaxCluster; ++size) {
    int count = 0;
    const bool answered = query(size, &count);
    clusters[size] = answered ? std::max(0, std::min(count, multiprocessors / size)) : 0;
  }
}

// Leaves no more than `most` multiprocessors, and the clusters that there are at least among so
// many: as many fewer as there are fewer multiprocessors, and where the part is not known none of
// more blocks than every GPU with clusters has.
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

#endif  // HASTE_LIB_CUDA_HOST_CLUSTERS_H_
