"""`Adjacency`: which two data sets must be hard to tell apart."""

from enum import Enum


class Adjacency(Enum):
    """Which two data sets count as neighbours.

    ZERO_OUT
        One row is replaced by a null row that contributes nothing. The number of rows is public.
    ADD_REMOVE
        One row is added or removed. The number of rows is private, so nothing may be divided by it.
    REPLACE_ONE
        One row is replaced by any other. The number of rows is public. A sum can move twice as far as under
        ZERO_OUT; `Bounded.sensitivity` is the one place that knows it.
    """

    ZERO_OUT = "zero-out"
    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def of(cls, value: "Adjacency | str") -> "Adjacency":
        """Return the member that `value` is or names."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"adjacency must be one of {names}, got {value!r}.") from None
