// Whether an NVIDIA driver runs code of a CUDA toolkit. Plain C++, so that a machine without either
// can test the messages. Versions are as CUDA numbers them: 13010 is 13.1.
#pragma once

#include <string>

namespace haste {

// The newest CUDA that this machine's NVIDIA driver runs; 0 without a driver. It asks the driver's
// library and not the CUDA runtime, which would initialise CUDA.
int DriverVersion();

// A driver runs code of every toolkit of its major version and of older ones.
bool DriverRuns(int driver, int toolkit);

// The error for a `driver` (0: none is loaded) that does not run this library, built with
// `toolkit`: which driver there is, which is needed, and what to do.
std::string DriverSentence(int driver, int toolkit);

}  // namespace haste
