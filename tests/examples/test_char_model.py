"""The character model's sampler reads one character a call and forgets nothing."""

import keras
import numpy as np
import pytest

from examples import char_model

SYMBOLS = 11
# Both sum the same products in float32; the states go through memory between two calls.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = char_model.build_model(SYMBOLS)
    # As training would leave it: no bias at zero, no state near it.
    model.set_weights([w + np.random.normal(size=w.shape, scale=0.1) for w in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(4).integers(SYMBOLS, size=60)


def whole(model, codes):
    """Logits after each character, of the training model on the whole prefix."""
    return model(codes[None], training=False).numpy()[0]


def test_stream_is_the_model_on_the_whole_prefix(model, codes):
    stream = char_model.Stream(model)
    got = np.stack([stream.read(code) for code in codes])
    want = whole(model, codes)
    assert np.abs(want[1:] - want[:-1]).max() > 0.1  # the logits do depend on what was read
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)


def test_restart_forgets(model, codes):
    stream = char_model.Stream(model)
    for code in codes[:30]:
        stream.read(code)
    went_on = stream.read(codes[30])
    stream.restart()
    again = np.stack([stream.read(code) for code in codes[30:]])
    np.testing.assert_allclose(again, whole(model, codes[30:]), rtol=0, atol=TOLERANCE)
    assert np.abs(went_on - again[0]).max() > 1e-3


def test_sample_reads_each_character_once(model):
    class Counting(char_model.Stream):
        def __init__(self, model):
            super().__init__(model)
            self.reads = []

        def read(self, code):
            self.reads.append(code)
            return super().read(code)

    stream = Counting(model)
    alphabet = "abcdefghijk"
    text = char_model.sample(stream, alphabet, "bad", length=20)
    assert text.startswith("bad")
    assert len(text) == 23
    assert [alphabet[code] for code in stream.reads] == list(text)
    assert text == char_model.sample(stream, alphabet, "bad", length=20)  # restarted, same draws
