"""`Adjacency`: which two data sets count as neighbours, and the words for it in receipts and reports."""

from enum import Enum


class Adjacency(Enum):
    """Which two data sets count as neighbours.

    ZERO_OUT
        One row is replaced by a null row that contributes nothing. The number of rows is public.
    ADD_REMOVE
        One row is added or removed. The number of rows is private, so nothing may be divided by it.
    REPLACE_ONE
        One row is replaced by any other. The number of rows is public. A sum can move twice as far as under
        ZERO_OUT; `Bounded.sensitivity` takes this into account.
    """

    ZERO_OUT = "zero-out"
    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def of(cls, value: "Adjacency | str") -> "Adjacency":
        """Return `value` itself, or the member of that name."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"adjacency must be one of {names}, got {value!r}.") from None

    @property
    def factor(self) -> float:
        """Sensitivity of a sum of terms of length at most 1: 2 if a row is replaced, else 1.

        For plans only. What is released uses `Bounded.sensitivity`.
        """
        return 2.0 if self is Adjacency.REPLACE_ONE else 1.0

    @property
    def protects(self) -> str:
        """What is protected, in words."""
        return {
            Adjacency.ZERO_OUT: "one row, used or left blank",
            Adjacency.ADD_REMOVE: "one row, in the data or not",
            Adjacency.REPLACE_ONE: "one row, replaced by any other",
        }[self]

    @property
    def question(self) -> str:
        """What an attacker wants to find out about one row, in words."""
        return {
            Adjacency.ZERO_OUT: "whether that row was used or left blank",
            Adjacency.ADD_REMOVE: "whether that row was in the data or not",
            Adjacency.REPLACE_ONE: "which of two given rows was in its place",
        }[self]

    @property
    def rows(self) -> str:
        """Whether the number of rows is protected, in words."""
        return f"the number of rows is {'private' if self is Adjacency.ADD_REMOVE else 'public'}"
