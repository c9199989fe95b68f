"""Seeds: what is drawn is a function of the seed and of nothing else."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops

DRAWS = {
    "zoneout": {"zoneout": 0.5},
    "zoneout_cell": {"zoneout_cell": 0.5},
    "dropout": {"recurrent_dropout": 0.5},
}


@pytest.fixture(params=DRAWS.values(), ids=DRAWS.keys())
def run(request, inputs):
    wx, recurrent_kernel, *states = inputs(hidden=8)

    def call(seed, **options):
        options = {"training": True, **request.param, **options}
        return ops.lstm(wx, recurrent_kernel, states, seed=seed, **options)[0].numpy()

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


def test_rate_is_the_share_that_is_kept():
    """With all gates wide open h moves in every step, unless Zoneout holds it."""
    batch, time, hidden, rate = 16, 50, 32, 0.3
    wx = tf.reshape(tf.range(1.0, time + 1), [1, time, 1, 1, 1]) / time
    wx = tf.broadcast_to(wx, [batch, time, 1, 4, hidden])
    y, _ = ops.lstm(wx, tf.zeros([1, hidden, 4, hidden]), zoneout=rate, training=True, seed=(3, 4))
    held = (np.diff(y[:, :, 0], axis=1) == 0).mean()
    deviation = np.sqrt(rate * (1 - rate) / (batch * (time - 1) * hidden))
    assert abs(held - rate) < 5 * deviation
