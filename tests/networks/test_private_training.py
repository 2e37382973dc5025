"""The schedule of first-order mirror descent, in both readings of the paper, and temperature scaling."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")


from dpadapt.networks.private_training import mixing_weights
from dpadapt.networks.public_training import fit_temperature, log_loss


def test_the_weight_follows_the_cosine_and_never_turns_negative():
    weights = mixing_weights(9600, decay_steps=2000)
    assert weights[0] == 1.0
    assert weights[1000] == pytest.approx(math.cos(math.pi / 4))
    # The printed cosine would be -1 here.
    assert weights[4000] == 0.0
    assert np.all(weights >= 0)
    # As printed, four fifths of the training would be on public rows alone.
    assert np.count_nonzero(weights) == 2000


def test_by_default_the_decay_is_slow():
    weights = mixing_weights(100)
    assert weights[-1] == pytest.approx(math.cos(math.pi * 99 / 400))
    assert np.all(np.diff(weights) < 0)


def test_a_floor_holds():
    weights = mixing_weights(100, decay_steps=10, floor=0.3)
    assert weights.min() == 0.3
    assert weights[0] == 1.0


@pytest.mark.parametrize("options", [{"decay_steps": 0}, {"floor": 1.0}, {"floor": -0.1}, {"floor": "half"}])
def test_bad_schedules_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        mixing_weights(10, **options)


def test_temperature_undoes_a_scale_and_lowers_the_loss():
    random = np.random.default_rng(0)
    codes = random.integers(0, 4, 4000)
    scores = np.eye(4)[codes] + random.gumbel(size=(4000, 4))
    found = fit_temperature(7 * scores, codes)
    assert found == pytest.approx(7 * fit_temperature(scores, codes), rel=1e-2)
    assert log_loss(7 * scores, codes, found) < log_loss(7 * scores, codes) - 0.1


def test_few_rows_that_are_all_right_do_not_ask_for_certainty():
    assert fit_temperature(np.eye(3) * 2, np.arange(3)) > 0.1
