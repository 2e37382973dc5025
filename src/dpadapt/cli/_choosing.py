"""What `dpadapt fit --task clustering` does: check all of it, open the ledger, choose public rows, save them."""

import filecmp
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpadapt import _validate, persist
from dpadapt.cli._fitting import LedgerOptions, assumed, check_ledger_options, open_ledger
from dpadapt.cli._options import Incomplete, console
from dpadapt.data import Public
from dpadapt.methods import CHOICES
from dpadapt.tables import Schema, check_columns, encode_features, read_schema, read_table

_CHOSEN = "chosen.csv"


def choose(
    *,
    private: Path,
    public: Path | None,
    schema: Path,
    clusters: int | None,
    epsilon: float,
    delta: float,
    out: Path,
    ledger: LedgerOptions,
    adjacency: str,
    seed: int | None,
    method: str | None,
    unused: dict[str, Any],
) -> None:
    """Choose rows of the public table, save and print. Nothing is spent unless every check has passed."""
    from dpadapt.report.summarise import summarise_receipt
    from dpadapt.report.terminal import facts_table

    for option, value in unused.items():
        if value is not None:
            raise ValueError(f"{option}: --task clustering has no such choice. Leave it out.")
    known = {choice.name: choice for choice in CHOICES}
    if method not in (None, *known):
        raise ValueError(f"--method must be one of {', '.join(known)} for clustering, got {method!r}.")
    if clusters is None or public is None:
        missing = "--public must be the table of rows to choose from" if public is None else "--clusters must be given"
        raise ValueError(f"{missing} with --task clustering.")
    _validate.count(clusters, "--clusters")
    _validate.positive(epsilon, "--epsilon")
    _validate.delta(delta, "--delta")
    check_ledger_options(ledger)
    found = read_schema(schema, origin=f"--schema {schema}")
    targets, T = _encoded(public, "--public", found, private=False)
    if clusters > len(T):
        raise ValueError(f"--clusters must be at most the number of public rows, {len(T)}, got {clusters}.")
    _, S = _encoded(private, "--private", found, private=True)
    if filecmp.cmp(public, private, shallow=False):
        raise ValueError(f"--public {public}: this is the private file, which would not be protected. Give other rows.")
    persist.prepare(out)
    model = known[method or CHOICES[0].name].estimator(
        n_clusters=clusters, epsilon=epsilon, delta=delta, adjacency=adjacency, random_state=seed
    )
    book = open_ledger(ledger, found, epsilon=epsilon, delta=delta, adjacency=adjacency)
    model.fit(S, public=Public(T), ledger=book)
    model.privacy_ = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, *assumed(found, None)))
    rows = targets.frame.iloc[model.centers_]
    try:
        persist.save(model, out, extra={"schema": found.to_dict(), "task": "clustering"})
        text = rows.rename_axis("row").to_csv()
        persist.write_atomically(out / _CHOSEN, text.encode())
    except (OSError, ValueError) as error:
        chosen = " ".join(str(row) for row in sorted(model.centers_.tolist()))
        raise Incomplete(
            f"--out {out}: can't write there ({error}). The budget is spent; rows chosen: {chosen}."
        ) from None
    receipt = summarise_receipt(model.privacy_)
    facts = {
        "cost": f"epsilon = {model.privacy_.epsilon:.4g}, delta = {model.privacy_.delta:.3g}",
        "protects": receipt["protects"],
        "released": "\n".join(f"{entry['label']}: {entry['mechanism']}" for entry in receipt["entries"]),
        "assumed public": "\n".join(receipt["assumptions"]),
        "chosen": f"{clusters} of {len(T):,} public rows",
        "distance to expect": f"{model.cost_estimate_:.4g} from a public row to its nearest centre, an estimate in the "
        f"units of the encoded columns",
    }
    screen = console()
    screen.print(facts_table("Receipt", facts))
    for warning in receipt["warnings"]:
        screen.print(f"[bold yellow]warning:[/] {warning}")
    screen.print(f"Wrote {_CHOSEN}, model.json, arrays.npz and receipt.json to {out}", soft_wrap=True, markup=False)


def _encoded(path: Path, option: str, schema: Schema, *, private: bool) -> tuple[Any, Any]:
    """Read a table and encode it by the schema, without a label."""
    # A single private row will do: the number of private rows may be private itself.
    table = read_table(path, origin=f"{option} {path}", private=private)
    check_columns(table, schema)
    return table, encode_features(table, schema)
