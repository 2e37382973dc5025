"""Where a row may be missing, every map of private rows gives each row the same numbers, whatever its place is."""

import os
import platform
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.learning.linear import _residual_rows
from dpadapt.learning.logistic import _coordinate_rows
from dpadapt.learning.scaling import public_geometry
from dpadapt.papers.subspace.probes import probe_rows
from dpadapt.papers.subspace.solvers import _projected, _residual_sizes
from dpadapt.representation.subspace import task_model, task_prior
from dpadapt.representation.subspace_regression import _inside
from dpadapt.rows import Part
from dpadapt.transfer.classification_plan import Coordinates

D, K = 20, 3
RANDOM = np.random.default_rng(2)
BASIS = np.linalg.qr(RANDOM.standard_normal((D, D)))[0]
PUBLIC = RANDOM.standard_normal((60, D))


def _task_rows(part, *, fixed_rows):
    public = Public(PUBLIC, PUBLIC[:, 0], tasks=np.arange(60) % 6)
    model = task_model(PUBLIC, public, method="moments", k=2, intercept=True, basis=None)
    return task_prior(model, intercept=True, soft=True).rows(part.X, fixed_rows=fixed_rows)


def _logits(part, *, fixed_rows):
    coordinates = Coordinates(np.zeros(D), np.ones(D), BASIS[:, :K], np.full(K, 1 / K))
    return coordinates.transform(part.X, np.ones(K + 1), fixed_rows=fixed_rows)


MAPS = {
    "linear": partial(_residual_rows, geometry=public_geometry(PUBLIC), start=np.ones(D + 1), shrinkage=1.0),
    "logistic": partial(_coordinate_rows, geometry=public_geometry(PUBLIC)),
    "projected": partial(_projected, basis=BASIS[:, :K]),
    "inside a subspace": partial(_inside, basis=BASIS[:, :K]),
    "whitened probe": probe_rows(PUBLIC, D, "whitened").private_rows,
    "tasks": _task_rows,
    "transfer classifier": _logits,
}


@pytest.mark.parametrize("name", MAPS)
def test_a_row_is_mapped_by_itself(name):
    # Rows that are orthogonal to the first directions: what a product leaves there is rounding.
    X = np.repeat(1e16 * (BASIS[:, K:] @ RANDOM.standard_normal(D - K))[None], 501, 0)
    arrays = [
        MAPS[name](Part(X[some], np.ones(len(X[some]))), fixed_rows=False) for some in (slice(None), slice(1, None))
    ]
    whole, without = (getattr(each, "X", each) for each in arrays)
    assert np.isfinite(whole).all()
    assert np.array_equal(whole[1:], without)


def test_bins_of_residuals_move_by_one_row_alone():
    X = np.repeat(1e16 * (BASIS[:, K:] @ RANDOM.standard_normal(D - K))[None], 501, 0)
    counts = [
        _residual_sizes(
            _projected(Part(X[some], np.zeros(len(X[some]))), basis=BASIS[:, :K], fixed_rows=False),
            slice(None),
            solution=np.ones(K),
        ).value
        for some in (slice(None), slice(1, None))
    ]
    assert np.abs(counts[0] - counts[1]).sum() == 1


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names kernels of this kind of processor")
def test_a_row_is_mapped_by_itself_with_kernels_of_another_processor():
    # Rounding by place depends on the processor. These kernels showed a map that others hid.
    command = [sys.executable, "-m", "pytest", "-q", f"{__file__}::test_a_row_is_mapped_by_itself"]
    outcome = subprocess.run(
        command, env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"}, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stdout
