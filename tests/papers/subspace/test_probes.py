"""`DescentProbe` and the rows of probes; `LeastSquaresProbe`, its rival, learns too."""

import numpy as np
import pytest

from benchmarks.rivals.subspace import LeastSquaresProbe
from dpadapt import Public
from dpadapt.papers.subspace.probes import DescentProbe, probe_rows


def data(n=300, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(2.0, 0.5, d)
    return X, np.argmax(X[:, :3] + 0.3 * random.standard_normal((n, 3)), axis=1)


PUBLIC = Public(data(100, seed=1)[0])


@pytest.mark.parametrize(
    ("estimator", "params"),
    [(DescentProbe, {"rows": "whitened", "n_steps": 100}), (LeastSquaresProbe, {"gram": "public"})],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_probes_learn(estimator, params):
    X, y = data(4000)
    assert estimator(2.0, 1e-5, classes=[0, 1, 2], random_state=0, **params).fit(X, y, public=PUBLIC).score(X, y) > 0.8


def test_rows_have_unit_length_or_are_whitened_by_public_rows():
    X = data(2000, seed=2)[0] + 5
    unit = probe_rows(X, 5, "unit").transform(X)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1.0)
    whitened = probe_rows(X, 5, "whitened").transform(X)
    # Up to the floor under small variances: here 1% of the average.
    assert np.allclose(whitened.T @ whitened / len(X), np.eye(5), atol=0.1)
