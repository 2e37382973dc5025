"""Public scales, the base class of the private regressions of paper 1, and the weighted regressions."""

import numpy as np
import pytest

from dpadapt.papers.adaptation.preparation import bounded_rows, target_scale, unit_geometry, unit_rows


@pytest.mark.parametrize("public_too", [True, False])
def test_unit_geometry_gives_most_public_rows_a_length_of_at_most_one(public_too):
    X = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 50.0, 0.01] + [5.0, 0.0, 0.0]
    if public_too:
        lengths = np.linalg.norm(unit_geometry(3, X).transform(X), axis=1)
        assert np.mean(lengths <= 1) == pytest.approx(0.95, abs=0.002)
    else:
        # Features declared to lie in [-1, 1]: the longest row has length 1 exactly.
        corners = unit_geometry(3, None).transform(np.ones((1, 3)))
        assert np.linalg.norm(corners) == pytest.approx(1.0)


def test_unit_rows_are_those_of_the_geometry_and_raise_no_numerical_error():
    random = np.random.default_rng(0)
    X = random.standard_normal((50, 3)) * [1.0, 10.0, 0.1] + 5
    for geometry in (unit_geometry(3, X), unit_geometry(3, None)):
        assert unit_rows(geometry, X) == pytest.approx(geometry.transform(X), rel=1e-14)
        with np.errstate(all="raise"):
            rows = unit_rows(geometry, np.array([[1e308, -1e308, 0.0], [np.inf, 1.0, np.nan], [5e-324, 0.0, 0.0]]))
        assert not np.isfinite(rows[1]).all()


def test_target_scale_is_that_of_the_bounds_or_of_public_labels():
    labels = np.append(np.linspace(-1.0, 3.0, 999), 1e6)
    scale = target_scale(None, labels)
    assert scale.middle == pytest.approx(labels.mean())
    assert np.mean(np.abs(scale.apply(labels)) <= 1) == pytest.approx(0.99, abs=0.002)
    declared = target_scale((0.0, 10.0), None)
    assert declared.apply(np.array([0.0, 5.0, 10.0])).tolist() == [-1.0, 0.0, 1.0]
    # Bounds with public labels: the mean of the labels becomes 0, and both ends stay within [-1, 1].
    both = target_scale((0.0, 10.0), np.array([1.0, 3.0]))
    assert both.apply(np.array([2.0, 10.0])).tolist() == [0.0, 1.0]
    assert target_scale(None, np.full(5, 3.0)).half > 0
    for bad in ((1.0, 0.0), (0.0, np.inf), 3.0, (1.0,)):
        with pytest.raises(ValueError, match="target_bounds"):
            target_scale(bad, None)


def test_bounded_rows_shorten_a_row_together_with_its_target():
    rows = bounded_rows(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), np.array([1.0, 9.0, 0.5]))
    assert rows.X[:2] == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4]]))
    assert rows.y[:2] == pytest.approx([0.2, 1.0])
    # A row that is not finite becomes a null row.
    assert not rows.X[2].any()
    assert rows.y[2] == 0.0
