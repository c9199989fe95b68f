// The list of cells: the only one in C++. (lib/cells/cells.bzl names the same to the build.)
#if defined(HASTE_LIB_CELLS_CELLS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_CELLS_H_
#else
#define HASTE_LIB_CELLS_CELLS_H_
#endif

#include "lib/cells/lstm.h"

// X(struct) for each cell.
#define HASTE_CELLS(X) X(Lstm)

#endif
