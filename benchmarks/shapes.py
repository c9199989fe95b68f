"""The shapes that benchmarks run: (N, T, C, H) = batch, time steps, features, hidden units."""

# What people run on a CPU: streaming rows, mid-sized batches, one wide layer, long and short.
CPU = [
    (1, 100, 128, 256),
    (32, 100, 128, 128),
    (32, 100, 128, 256),
    (64, 50, 256, 512),
    (16, 128, 768, 768),
    (8, 500, 64, 64),
    (128, 64, 64, 128),
]

# A stream or a server: one row, a step or a few; then two rows and four.
CPU_SMALL = [
    *((1, t, h, h) for t in (1, 10, 100) for h in (64, 128, 256, 512)),
    *((n, 100, h, h) for n in (2, 4) for h in (64, 128, 256, 512)),
]

# Where weights of fewer bytes should pay: the large ones of CPU, and a few rows of wide layers.
CPU_NARROW = [
    *(shape for shape in CPU if shape[0] >= 16),
    (1, 1, 512, 512),
    (1, 100, 256, 256),
    (1, 100, 512, 512),
    (4, 100, 256, 256),
    (8, 100, 256, 256),
    (8, 50, 512, 512),
]

# The long sequence on which Haste and FlashRNN report.
GPU_LONG = (16, 1024, 768, 768)

# Small and large batches, sequences and layers around it.
GPU = [
    GPU_LONG,
    (1, 100, 128, 256),
    (32, 100, 128, 256),
    (64, 100, 256, 512),
    (8, 1000, 256, 256),
    (128, 100, 768, 768),
    (256, 128, 64, 64),
    (32, 100, 1024, 2048),
]
