"""The cells that the build compiles engines for: the structs of lib/cells/cells.h."""

# One product a step: those for which float16 can stand for float32 in it, and the others.
STATIONARY_FLOAT_CELLS = ["Lstm", "Gru", "Elman", "LiGru"]
ONE_PRODUCT_CELLS = STATIONARY_FLOAT_CELLS + ["SLstm"]
MATRIX_CELLS = ONE_PRODUCT_CELLS + ["GruResetBefore"]
NORM_CELLS = ["LayerNormLstm", "LayerNormGru"]
SCAN_CELLS = ["IndRnn", "QrnnF", "QrnnFo", "QrnnIfo", "ForgetMult", "MinGru", "MinLstm"]
