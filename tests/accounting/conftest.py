"""Lets the tests import `adaptive_analyst`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
