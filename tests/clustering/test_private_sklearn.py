"""scikit-learn's own checks, with public targets made from the width of the data alone."""

import numpy as np
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from dpadapt import Public
from dpadapt.clustering.private import PrivateSourceTargetClustering


class WithTargets(PrivateSourceTargetClustering):
    """The checks know no public data."""

    def fit(self, S, y=None, *, public=None, ledger=None):
        width = np.shape(S)[1] if np.ndim(S) == 2 else 1
        T = np.random.default_rng(0).standard_normal((30, width))
        return super().fit(S, y, public=Public(T) if public is None else public, ledger=ledger)


ESTIMATOR = WithTargets(3, epsilon=10.0, random_state=0)
EXPECTED_FAILURES = {
    "check_estimators_empty_data_messages": "there may be no sources: the answer is then that of the targets alone",
    "check_dtype_object": "a cell that is no number is refused, but its type is not told",
}


@parametrize_with_checks([ESTIMATOR], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_enough_checks_ran():
    assert len(list(estimator_checks_generator(ESTIMATOR))) >= 30
