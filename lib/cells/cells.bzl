"""The cells that the build compiles engines for: the structs of lib/cells/cells.h."""

MATRIX_CELLS = ["Lstm", "Gru", "GruResetBefore", "Elman", "SLstm"]
NORM_CELLS = ["LayerNormLstm", "LayerNormGru"]
SCAN_CELLS = ["IndRnn", "QrnnF", "QrnnFo", "QrnnIfo", "ForgetMult"]
