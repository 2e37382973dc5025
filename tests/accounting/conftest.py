"""Lets the tests import `ledger_files` and `crash_driver`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
