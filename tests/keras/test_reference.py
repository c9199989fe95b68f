"""The oracle itself: known answers of Philox, and the stock layer in float64."""

import numpy as np
from rows import assert_close, make_mask, oracle, randomize

from haste_keras import reference


def test_philox_known_answers():
    """Vectors that come with the authors' Random123 library."""
    ones = 0xFFFFFFFF
    answers = {
        ((0, 0), (0, 0, 0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((ones, ones), (ones,) * 4): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)): (
            0xD16CFE09,
            0x94FDCCEB,
            0x5001E420,
            0x24126EA1,
        ),
    }
    for (key, counter), expected in answers.items():
        assert tuple(int(word) for word in reference.philox(key, counter)) == expected


def test_key_uses_both_numbers():
    keys = {reference.philox_key(seed) for seed in [(1, 0), (0, 1), (1, 1), (2**40, 0), (-1, 0)]}
    assert len(keys) == 5


def test_draw_has_its_rate():
    word = reference.philox((1, 2), (0, np.arange(20000), 0, 0))[0]
    assert abs(reference.draw(word, 0.3).mean() - 0.3) < 0.01
    assert not reference.draw(word, 0.0).any()
    assert reference.draw(word, 1.0).all()


def test_is_the_stock_layer(row, rng):
    for mask_kind in (None, "left", "holes", "all"):
        stock = row.stock(
            5, dtype="float64", return_sequences=True, return_state=True, use_cudnn=False
        )
        layer = row.layer(5, dtype="float64")
        stock.build((3, 6, 4)), layer.build((3, 6, 4))
        randomize(stock, rng)
        layer.set_weights(stock.get_weights())
        x = rng.normal(size=(3, 6, 4))
        mask = make_mask(mask_kind, 3, 6, rng) if mask_kind else None
        y, states = oracle(row, layer, x, mask=mask)
        got = dict(enumerate(np.asarray(each) for each in [*y, *states]))
        want = dict(enumerate(np.asarray(each) for each in stock(x, mask=mask)))
        assert_close(got, want, 1e-13)
