"""The Gaussian pairs are the paper's: divergences, shares, and labels that both populations have in common."""

import numpy as np
import pytest

from dpadapt.datasets.gaussian_pairs import APPENDIX_C, APPENDIX_D_EASY, APPENDIX_D_HARD, GaussianPair


@pytest.mark.parametrize(("pair", "figure"), [(APPENDIX_C, 3e15), (APPENDIX_D_EASY, 1.35), (APPENDIX_D_HARD, 39.1)])
def test_divergences_are_those_the_paper_prints(pair, figure):
    assert figure < pair.divergence + 1 < 1.02 * figure


@pytest.mark.parametrize("pair", [APPENDIX_C, APPENDIX_D_EASY, GaussianPair(9, 3, 1.0, 0.5, 0.3, "ball", spread=4.0)])
def test_the_share_of_the_target_with_label_0_is_as_stated(pair):
    _, y = pair.target(20_000, seed=1)
    # Five standard errors.
    assert np.mean(y == 0) == pytest.approx(pair.share, abs=5 * (pair.share / 20_000) ** 0.5)


def test_both_populations_follow_one_rule_in_the_same_columns():
    pair = APPENDIX_D_EASY
    close = pair.close(seed=3)
    for X, y in (pair.curator(500, seed=3), pair.target(500, seed=3, single=True)):
        assert ((np.square(X[:, close]).sum(axis=1) > pair.radius) == (y == 1)).mean() > 0.999
    spread = [part[0].std(axis=0)[close].mean() for part in (pair.curator(5000, seed=3), pair.target(5000, seed=3))]
    assert spread == pytest.approx([0.1, 0.07], rel=0.05)
    assert pair.target(10, seed=3, single=True)[0].dtype == np.float32
