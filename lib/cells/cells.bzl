"""The cells that the build compiles engines for: the structs of lib/cells/cells.h."""

ONE_PRODUCT_CELLS = ["Lstm", "Gru", "Elman", "SLstm", "LiGru"]
MATRIX_CELLS = ONE_PRODUCT_CELLS + ["GruResetBefore"]
# One product a step without exponential gates: R can be stationary for float32.
STATIONARY_FLOAT_CELLS = ["Lstm", "Gru", "Elman", "LiGru"]
NORM_CELLS = ["LayerNormLstm", "LayerNormGru"]
SCAN_CELLS = ["IndRnn", "QrnnF", "QrnnFo", "QrnnIfo", "ForgetMult", "MinGru", "MinLstm"]
