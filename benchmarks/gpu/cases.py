"""The cases of `benchmarks.gpu`: those of the goals, the usual shapes, and a grid."""

import dataclasses
import itertools
import random

import torch

from benchmarks import shapes

# Precisions; "tf32" is float32 whose products may use TensorFloat-32.
DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
CELLS = ("lstm", "gru", "elman", "slstm", "ligru", "gru_reset_before")
RATE = 0.1  # of Zoneout and of recurrent dropout in regularised cases

# (cell, lanes): forward, forward + backward in ms, of FlashRNN's `cuda_fused` backend: recurrence
# alone, bfloat16, N=16 T=1024, 768 units in all. Measured on one NVIDIA H200, in a run of its own.
FLASHRNN = {
    ("lstm", 1): (5.04, 13.9),
    ("lstm", 3): (3.74, 10.2),
    ("lstm", 6): (3.37, 8.97),
    ("lstm", 12): (3.39, 8.45),
    ("slstm", 1): (5.03, 14.2),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer, or with C = 0 a recurrence alone, at one size.

    dtype: of DTYPES. H: hidden units of a lane. K: lanes. feature: "plain"; "bidirectional": the
    second of two lanes walks backwards; "regularised": an LSTM with Zoneout, recurrent dropout and
    a mask.
    """

    cell: str
    dtype: str
    N: int
    T: int
    C: int
    H: int
    K: int = 1
    feature: str = "plain"

    def __str__(self):
        sizes = f"N={self.N} T={self.T} C={self.C} H={self.H} K={self.K}"
        return f"{self.cell} {self.dtype} {sizes} {self.feature}"

    @property
    def options(self):
        """Of HasteRnnConfig."""
        options = {"training": 1, "allow_tf32": int(self.dtype == "tf32")}
        if self.feature == "bidirectional":
            options["reverse"] = [0, 1]
        if self.feature == "regularised":
            options |= {"zoneout": (RATE, RATE), "recurrent_dropout": RATE}
        return options

    @property
    def plain(self):
        """The same without the feature."""
        return dataclasses.replace(self, K=1, feature="plain") if self.C else self

    @property
    def flashrnn(self):
        """FlashRNN's times for this case, or None."""
        alone = self.C == 0 and self.feature == "plain" and self.dtype == "bfloat16"
        if alone and (self.N, self.T, self.H * self.K) == (16, 1024, 768):
            return FLASHRNN.get((self.cell, self.K))
        return None


def headline():
    """The cases that the goals were stated for, and with each feature the plain case."""
    long = shapes.GPU_LONG
    n, t, _, h = long
    yield from (Case("lstm", d, *long) for d in ("bfloat16", "float16", "float32", "tf32"))
    yield from (Case("lstm", "bfloat16", n, t, 0, h // k, k) for k in (1, 3, 6, 12))
    yield Case("slstm", "bfloat16", n, t, 0, h)
    yield Case("lstm", "bfloat16", 8, 1000, 256, 256)
    for cell, dtype in itertools.product(
        ("gru", "elman", "slstm", "ligru"), ("bfloat16", "float32")
    ):
        yield Case(cell, dtype, *long)
    for shape in (long, (1, *long[1:]), (16, 1000, 256, 256)):
        one = Case("lstm", "bfloat16", *shape)
        if shape != long:
            yield one
        yield dataclasses.replace(one, K=2, feature="bidirectional")
    for dtype in ("bfloat16", "float32"):
        yield Case("lstm", dtype, *long, feature="regularised")


def usual(cells, dtypes):
    """Small and large batches, sequences and layers."""
    for cell, dtype, shape in itertools.product(cells, dtypes, shapes.GPU):
        yield Case(cell, dtype, *shape)


def grid(cells, dtypes):
    """240 points of each cell and dtype, in an order drawn once: any part is a sample."""
    batches = (1, 16, 32, 64, 128)
    features, hidden = (64, 128, 256, 512), (128, 256, 512, 1024, 1536, 2048)
    points = list(itertools.product(batches, (100, 1000), features, hidden))
    random.Random(0).shuffle(points)
    for cell, dtype, point in itertools.product(cells, dtypes, points):
        yield Case(cell, dtype, *point)
