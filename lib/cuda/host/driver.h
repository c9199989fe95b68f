// Whether an NVIDIA driver runs code of a CUDA toolkit. Plain C++, so that a machine with neither
// can test what one with both is told. Versions are as CUDA counts them: 13010 is 13.1.
#ifndef HASTE_LIB_CUDA_HOST_DRIVER_H_
#define HASTE_LIB_CUDA_HOST_DRIVER_H_

#include <string>

namespace haste {

// The newest CUDA that this machine's NVIDIA driver runs; 0: there is none. Does not initialise
// CUDA: asks the driver's library and no CUDA runtime, which would.
int DriverVersion();

// A driver runs what any toolkit of its major version, or of an older one, has built.
bool DriverRuns(int driver, int toolkit);

// One sentence for those whose `driver` (0: none is loaded) does not run this library, which was
// built with `toolkit`: what is there, what is needed, and what to do.
std::string DriverSentence(int driver, int toolkit);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_DRIVER_H_
