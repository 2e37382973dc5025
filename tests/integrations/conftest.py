"""A server for tests; lets the tests import the helpers beside them and those of ledgers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "accounting"))

from postgres_server import running_server, server  # noqa: F401
