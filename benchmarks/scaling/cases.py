"""What is timed: sizes of the model, and the settings of a training run."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of the model; `time` is the steps of a sequence."""

    words: int = 8000
    features: int = 512
    units: int = 1024
    time: int = 100


SMALL = Sizes(words=50, features=8, units=16, time=6)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training run.

    who: "ours" or "keras". batch: sequences a replica. jit: compile's jit_compile. steps:
    steps_per_execution. dense: whether the gradient of the embedding is dense. compiled: whether
    XLA compiles forward and backward of each replica, but not the sum over replicas. parts: whether
    parts of the step are timed too.
    """

    who: str = "ours"
    batch: int = 64
    jit: bool | str = "auto"
    steps: int = 1
    dense: bool = False
    compiled: bool = False
    parts: bool = False

    def text(self):
        """The settings that are not fit's own."""
        words = [f"{self.who} batch {self.batch}"]
        if self.jit != "auto":
            words.append(f"jit_compile={self.jit}")
        if self.steps > 1:
            words.append(f"steps_per_execution={self.steps}")
        if self.dense:
            words.append("dense gradient")
        if self.compiled:
            words.append("compiled replicas")
        return ", ".join(words)


# On one GPU each. Ours and Keras's have a GPU each where there are two, at the same time.
ONE = {
    "ours": [
        Case(),
        Case(jit=False, parts=True),
        Case(steps=10),
        Case(batch=256, steps=10),
        Case(batch=256, jit=False, steps=10),
        Case(batch=512, steps=10),
    ],
    "keras": [
        Case("keras", jit=False, parts=True),
        Case("keras", batch=256, jit=False, steps=10),
        Case("keras", batch=512, jit=False, steps=10),
        Case("keras"),
    ],
}
# On two: what comes first tells most.
TWO = [
    Case(parts=True),
    Case(steps=10, dense=True, compiled=True),
    Case(batch=256, steps=10, dense=True, compiled=True),
    Case("keras"),
    Case("keras", batch=256, steps=10),
    Case(steps=10),
    Case(steps=10, dense=True),
    Case(batch=256, steps=10, dense=True),
    Case(batch=512, steps=10, dense=True, compiled=True),
    Case("keras", batch=512, steps=10),
    Case(batch=256, steps=10),
]
# The same again with the sum over replicas by copies between GPUs, in place of NCCL.
COPY = [Case(parts=True), Case(batch=256, steps=10, dense=True, compiled=True)]
# A process for each GPU.
WORKERS = [
    Case(steps=10, dense=True, compiled=True),
    Case(batch=256, steps=10, dense=True, compiled=True),
]
