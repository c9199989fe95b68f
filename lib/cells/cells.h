// The list of cells: the only one in C++. (lib/cells/cells.bzl names the same to the build.)
#if defined(HASTE_LIB_CELLS_CELLS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_CELLS_H_
#else
#define HASTE_LIB_CELLS_CELLS_H_
#endif

#include "lib/cells/elman.h"
#include "lib/cells/gru.h"
#include "lib/cells/gru_reset_before.h"
#include "lib/cells/indrnn.h"
#include "lib/cells/layer_norm.h"
#include "lib/cells/ligru.h"
#include "lib/cells/lstm.h"
#include "lib/cells/min_rnn.h"
#include "lib/cells/qrnn.h"
#include "lib/cells/slstm.h"

// X(struct) for each cell, by the engine that walks it: with one matrix product a step, or two; the
// same with layer normalisation; element by element.
#define HASTE_ONE_PRODUCT_CELLS(X) X(Lstm) X(Gru) X(Elman) X(LiGru) X(SLstm)
#define HASTE_TWO_PRODUCT_CELLS(X) X(GruResetBefore)
#define HASTE_MATRIX_CELLS(X) HASTE_ONE_PRODUCT_CELLS(X) HASTE_TWO_PRODUCT_CELLS(X)
#define HASTE_NORM_CELLS(X) X(LayerNormLstm) X(LayerNormGru)
#define HASTE_SCAN_CELLS(X) \
  X(IndRnn) X(QrnnF) X(QrnnFo) X(QrnnIfo) X(ForgetMult) X(MinGru) X(MinLstm)
#define HASTE_CELLS(X) HASTE_MATRIX_CELLS(X) HASTE_NORM_CELLS(X) HASTE_SCAN_CELLS(X)

#endif
