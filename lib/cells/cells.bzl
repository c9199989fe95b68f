"""The cells that the build compiles engines for: the structs of lib/cells/cells.h."""

# One product a step.
ONE_PRODUCT_CELLS = ["Lstm", "Gru", "Elman", "LiGru", "SLstm"]
MATRIX_CELLS = ONE_PRODUCT_CELLS + ["GruResetBefore"]
NORM_CELLS = ["LayerNormLstm", "LayerNormGru"]
SCAN_CELLS = ["IndRnn", "QrnnF", "QrnnFo", "QrnnIfo", "ForgetMult", "MinGru", "MinLstm"]
