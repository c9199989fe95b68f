// A fake NVIDIA driver, libcuda.so.1, that runs CUDA up to $FAKE_CUDA_VERSION (12000 is
// 12.0) and has no GPU. What else is asked of it fails as on a machine without one.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kNoDevice = 100, kNotSupported = 801 };

static int Version(void) {
  const char* version = getenv("FAKE_CUDA_VERSION");
  return version == NULL ? 12000 : atoi(version);
}

int cuDriverGetVersion(int* version) {
  *version = Version();
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}

int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}

static int Unsupported(void) { return kNotSupported; }

static void* Find(const char* name) {
  if (strcmp(name, "cuDriverGetVersion") == 0) return (void*)cuDriverGetVersion;
  if (strcmp(name, "cuInit") == 0) return (void*)cuInit;
  if (strcmp(name, "cuDeviceGetCount") == 0) return (void*)cuDeviceGetCount;
  return (void*)Unsupported;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  (void)version;
  (void)flags;
  *function = Find(name);
  return 0;
}

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status) {
  if (status != NULL) *status = 0;
  return cuGetProcAddress(name, function, version, flags);
}

int cuGetExportTable(const void** table, const void* id) {
  (void)table;
  (void)id;
  return kNotSupported;
}
