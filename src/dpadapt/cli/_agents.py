"""People who answer for themselves, simulated from a file: for methods that are helped by them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpadapt import _validate
from dpadapt.cli._public import read_rows
from dpadapt.methods import Method, Task
from dpadapt.tables import Schema, check_columns, encode_features, encode_labels

if TYPE_CHECKING:
    from dpadapt.hybrid.simulated import SimulatedAgents


@dataclass(frozen=True)
class AgentOptions:
    """The people's file, and what an answer may cost each of them."""

    path: Path | None = None
    epsilon: float | None = None

    def check(self, method: Method, public: Path | None) -> None:
        """Refuse options that do not fit the method or each other."""
        if self.path is None and self.epsilon is not None:
            raise ValueError("--agents-epsilon is what an answer costs a person. Name their file with --agents.")
        if method.beside != "agents":
            if self.path is not None:
                raise ValueError(
                    f"--agents: the method {method.name} asks nobody. Leave it out, or use --method hybrid."
                )
            return
        if public is not None:
            raise ValueError(f"--public: the method {method.name} is helped by people (--agents), not by public rows.")
        if self.path is not None:
            if self.epsilon is None:
                raise ValueError("--agents-epsilon must be given with --agents: what an answer may cost each person.")
            _validate.positive(self.epsilon, "--agents-epsilon")

    def people(self, schema: Schema, *, label: str, task: Task, seed: int | None) -> "SimulatedAgents | None":
        """Return one simulated person per row of the file, if there is one."""
        from dpadapt.hybrid.simulated import SimulatedAgents

        if self.path is None or self.epsilon is None:
            return None
        table = read_rows(self.path, "--agents", private=True)
        check_columns(table, schema, label=label)
        X = encode_features(table, schema, label=label)
        return SimulatedAgents(X, encode_labels(table, schema, label=label, task=task), self.epsilon, random_state=seed)


def beside(
    method: Method, options: AgentOptions, public: Any, schema: Schema, *, label: str, task: Task, seed: int | None
) -> dict[str, Any]:
    """Return what a fit is given beside the private rows, by name."""
    if method.beside == "agents":
        return {"agents": options.people(schema, label=label, task=task, seed=seed)}
    return {"public": public}
