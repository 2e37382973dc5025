"""Experiments: the papers' figures and claims, speed, and harm. `python -m benchmarks NAME [--quick]` runs one."""

import warnings

from dpadapt.errors import PrivacyWarning

# Here, in every process of a benchmark: its data is public or made up, so it is fitted without ledgers.
warnings.filterwarnings("ignore", category=PrivacyWarning)
