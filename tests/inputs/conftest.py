"""Rows of three blocks."""

from tests.inputs.streamed import rows

__all__ = ["rows"]
