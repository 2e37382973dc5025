"""Battery (a): scikit-learn's own checks, on every method of the table."""

from collections import Counter

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from dpadapt.methods import PREDICTORS

# Each exception with its reason. Checks that scikit-learn skips by tag (poor_score) are not listed.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {}

FLOOR = 40


def _ready(method):
    # The checks have a few dozen rows; at a usual budget nothing would be released on so few, and little tested.
    return method.estimator(random_state=0, epsilon=100.0, delta=0.01)


@parametrize_with_checks(
    [_ready(method) for method in PREDICTORS],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(type(estimator).__name__, {}),
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: method.name)
def test_enough_checks_ran(method):
    counts = Counter(type(e).__name__ for e, _ in estimator_checks_generator(_ready(method)))
    assert counts[type(_ready(method)).__name__] >= FLOOR
    assert len(EXPECTED_FAILURES.get(type(_ready(method)).__name__, {})) <= 3
