"""`Adjacency`: which two data sets count as neighbours, and the words for it in receipts and reports."""

from enum import Enum

from dpadapt.rows import Unit


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

    def protects(self, unit: Unit = "row") -> str:
        """Return what is protected, in words."""
        one = "one row" if unit == "row" else "one person (all rows with one id)"
        return {
            Adjacency.ZERO_OUT: f"{one}, used or left blank",
            Adjacency.ADD_REMOVE: f"{one}, in the data or not",
            Adjacency.REPLACE_ONE: f"{one}, replaced by any other",
        }[self]

    def question(self, unit: Unit = "row") -> str:
        """Return what an attacker wants to find out about one row or one person, in words."""
        one, was = ("row", "that row was") if unit == "row" else ("person", "that person's rows were")
        return {
            Adjacency.ZERO_OUT: f"whether {was} used or left blank",
            Adjacency.ADD_REMOVE: f"whether {was} in the data or not",
            Adjacency.REPLACE_ONE: f"which of two given {one}s was in its place",
        }[self]

    def counted(self, unit: Unit = "row") -> str:
        """Return whether the number of rows, or of persons, is protected, in words."""
        return f"the number of {unit}s is {'private' if self is Adjacency.ADD_REMOVE else 'public'}"
