"""Rows of three blocks, and a PostgreSQL server; lets the tests import the helpers beside them and those of ledgers."""

import sys
from pathlib import Path

from tests.inputs.streamed import rows

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "accounting"))

from postgres_server import running_server, server

__all__ = ["rows", "running_server", "server"]
