"""Seeds: draws depend on the seed and on nothing else."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS

from haste_keras import ops

DRAWS = [
    (row, option)
    for row in ROWS
    for option in ("zoneout", "zoneout_cell", "recurrent_dropout")
    if row.takes(option)
]


@pytest.fixture(params=DRAWS, ids=lambda draw: f"{draw[0].name}-{draw[1]}")
def run(request, rng):
    row, option = request.param
    tensors = row.inputs(rng, hidden=8)

    def call(seed, **options):
        options = {"training": True, option: 0.5, **options}
        return row.call(tensors, seed=seed, **options)[0].numpy()

    return call


def test_same_seed_same_draw(run):
    assert (run(5) == run(5)).all()
    assert (run(5) == run([5, 0])).all()
    assert (run(5) == run(tf.constant([5, 0], tf.int32))).all()
    assert (run(5) == run(5, save=False)).all()
    assert (run(2**40 + 5) == run(np.int64(2**40 + 5))).all()


def test_every_part_of_the_seed_counts(run):
    seeds = [(0, 0), (1, 0), (0, 1), (2**40, 0), (0, 2**41), (-1, 0)]
    drawn = [run(seed) for seed in seeds]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            assert (a != b).any()


def test_no_draw_without_training(run):
    assert (run(5, training=False) == run(None, training=False)).all()


@pytest.mark.parametrize("function", ["lstm", "gru", "elman", "qrnn"])
def test_rate_is_the_share_that_is_kept(function):
    """With growing input h moves in every step, unless Zoneout holds it."""
    batch, time, hidden, rate = 16, 50, 32, 0.3
    gates = {"lstm": 4, "gru": 3, "elman": 1, "qrnn": 2}[function]
    wx = tf.reshape(tf.range(1.0, time + 1), [1, time, 1, 1, 1]) / time
    wx = tf.broadcast_to(wx, [batch, time, 1, gates, hidden])
    options = {"zoneout": rate, "training": True, "seed": (3, 4)}
    if function == "qrnn":
        y, _ = ops.qrnn(wx, pooling="f", **options)
    else:
        kernel = tf.zeros([1, hidden, gates, hidden])
        y, _ = getattr(ops, function)(wx, kernel, **options)
    held = (np.diff(y[:, :, 0], axis=1) == 0).mean()
    deviation = np.sqrt(rate * (1 - rate) / (batch * (time - 1) * hidden))
    assert abs(held - rate) < 5 * deviation


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "h_prev" in row.spec.saved], ids=lambda row: row.name
)
def test_dropout_does_not_make_the_h_that_a_gate_keeps_grow(row, rng):
    """It is on h·R alone: h is a mean of the h before and of values of tanh."""
    tensors = row.inputs(rng, batch=4, time=200, lanes=1, hidden=32, dtype=tf.float32)
    update = tf.one_hot(row.spec.gates.index("z"), len(row.spec.gates))
    tensors["wx"] += 6 * update[:, tf.newaxis]
    options = {"activation": "tanh", "recurrent_dropout": 0.3, "training": True, "seed": 5}
    y, _ = row.call(tensors, **options)
    assert np.abs(y).max() <= max(1, np.abs(tensors["h0"]).max())
