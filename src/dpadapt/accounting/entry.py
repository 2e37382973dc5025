"""`Entry`: one line of a ledger."""

from dataclasses import dataclass
from typing import Any

from dpadapt.mechanisms.events import Event, from_dict


@dataclass(frozen=True)
class Entry:
    """One charge: what was done, how often, and what it was for.

    Parameters
    ----------
    label : str
        What the release was for.
    event : Event
        What one release costs.
    times : int
        How many releases were charged.
    seeded : bool
        Whether the noise came from a seed, in which case there is no guarantee.
    """

    label: str
    event: Event
    times: int = 1
    seeded: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description, `entry_from_dict` reads it back."""
        return {"label": self.label, "event": self.event.to_dict(), "times": self.times, "seeded": self.seeded}

    def __str__(self) -> str:
        """Return e.g. ``gradient: Gaussian(noise_multiplier=2) x 100``."""
        times = f" x {self.times}" if self.times != 1 else ""
        return f"{self.label}: {self.event}{times}{' (seeded)' if self.seeded else ''}"


def entry_from_dict(fields: dict[str, Any]) -> Entry:
    """Return the entry that `Entry.to_dict` described."""
    return Entry(str(fields["label"]), from_dict(fields["event"]), int(fields["times"]), bool(fields["seeded"]))
