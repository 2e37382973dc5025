"""Results of `python -m benchmarks adaptation` as tables for the terminal, the HTML page and the documentation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.adaptation import claims
from benchmarks.adaptation.claims import mean, shown, spread
from benchmarks.adaptation.figures import CLAIMED_SEEDS, NOTES, PRINTED_SEEDS, TABLE_5
from benchmarks.adaptation.nonprivate import CLASSIFICATION_METHODS, REGRESSION_METHODS, TABLE_1_AND_3, TABLE_2_AND_6
from benchmarks.adaptation.sets import UNAVAILABLE, named
from benchmarks.pages import pipes, state_run, write_between

# What `--only` chooses from: the parts of the results that belong together on a page.
GROUPS = {
    "figures": ("figure 1", "figure 3", "sentiment"),
    "accuracy": ("accuracy",),
    "tables": ("regression", "classification"),
    "costs": ("privacy", "speed"),
}
Results = Mapping[str, Any]
Table = dict[str, Any]
_FIGURE_1 = {
    "ours": "ours",
    "paper": "Algorithm 1 as printed *",
    "exact": "Algorithm 1, exact noise *",
    "no noise": "Algorithm 1 without noise *",
    "default": "CnvxAdap's defaults",
    "noisy SGD": "noisy SGD *",
    "public": "public only",
    "not private": "target alone, not private",
}
_ACCURACY = {
    "ours": "ours",
    "exact": "Algorithm 2, exact noise, averaged *",
    "paper": f"Algorithm 2 as printed ({PRINTED_SEEDS} seeds; {CLAIMED_SEEDS} at 10,000 rows and epsilon 10, 15) *",
    "no noise": "Algorithm 2 without noise, averaged *",
    "public": "public only",
    "not private": "target alone, not private",
}
_WORDS_1 = (
    "Mean squared error over the variance of the test labels, ± one deviation over splits and noise; replace-one, "
    "delta 0.01. * tuned on test: the alpha and radius that are best on the test rows; the kappas have no effect. "
    "Without noise is Figure 1's dashed line."
)


def verdicts(results: Results) -> list[dict[str, str]]:
    """Return all claims; those without a verdict come last."""
    figures, third = results["figure 1"], results["figure 3"]
    of_cells = [
        *claims.figure_claims(figures),
        *claims.noise_claims(figures),
        *claims.rival_claims(figures, third),
        *claims.sentiment_claims(results["sentiment"]),
    ]
    if results["quick"]:
        # Two splits, fewer cells and a third of the steps: the full run could say the opposite.
        of_cells = [row | {"verdict": "few splits"} for row in of_cells]
    all_claims = [
        *of_cells,
        *claims.accuracy_noise_claims(results["accuracy"]),
        *claims.adult_claim(results["accuracy"]),
        *claims.table_claims(results["regression"], kind="regression"),
        *claims.table_claims(results["classification"], kind="classification"),
        *(claims.privacy_claims(results["privacy"]["rows"], results["privacy"]["valid"]) if results["privacy"] else ()),
        *results["speed"],
    ]
    return sorted(all_claims, key=lambda row: row["verdict"] not in ("holds", "missed"))


def facts(results: Results) -> list[str]:
    """Return sentences on how the results were measured."""
    size = "Quick run" if results["quick"] else "Full run"
    took = "piece by piece with `--keep`"
    if results["minutes"] is not None:
        took = f"{results['minutes']:.1f} minutes on {results['processes']} core(s)"
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    sentences = [
        f"{size}, {took}: {results['data']}.",
        f"{results['seeds']} splits unless said, the paper's algorithms with {results['n_steps']:,} steps. {versions}.",
    ]
    if results["figure 1"]:
        sentences.append(claims.below_public(results["figure 1"]))
    sentences += [f"Left out, {reason}" for reason in results["skipped"]]
    return [*sentences, *data_notes(results)]


def data_notes(results: Results) -> list[str]:
    """Return sentences on data that is partial or a stand-in, trivial targets, and splits that repeat rows."""
    sets = dict.fromkeys(cell["set"] for cell in results["figure 1"])
    notes = [f"Figures, {name}: {NOTES[name]}." for name in sets if name in NOTES]
    notes += [
        f"Table, {row['set']}: {named(row['set']).note}."
        for row in (*results["regression"], *results["classification"])
    ]
    for model in ("source", "target"):
        trivial = [row["set"] for row in results["classification"] if _trivial(row, model)]
        if trivial:
            notes.append(
                f"Trivial: a model of the {model} alone is at most one point better than always predicting the "
                f"more frequent class on {'; '.join(trivial)}."
            )
    if results["classification"]:
        notes.append(f"Not available: {', '.join(UNAVAILABLE)}.")
    return notes


def _trivial(row: Mapping[str, Any], model: str) -> bool:
    return mean(row["values"][model]) <= mean(row["values"]["majority"]) + 1.0


def tables(results: Results) -> Iterator[Table]:
    """Yield every table that has rows."""
    builders = (_figure_1, _figure_3, _accuracy, _sentiment, _regression, _classification, _privacy)
    yield from (table for build in builders if (table := build(results))["rows"])


def _figure_1(results: Results) -> Table:
    return _cells("Figures 1 and 2: error by rows and epsilon", _WORDS_1, results["figure 1"], _FIGURE_1, 3)


def _figure_3(results: Results) -> Table:
    columns = {
        "paper": "Algorithm 1, alpha 1 *",
        "private DM": "private DM",
        "ours": "ours",
        "public": "public only",
        "not private": "target alone, not private",
    }
    words = "As in the paper, at epsilon 15. At alpha 1 Algorithm 1 uses no private row. * tuned on test."
    return _cells("Figure 3: private discrepancy minimisation", words, results["figure 3"], columns, 3)


def _accuracy(results: Results) -> Table:
    words = (
        "Accuracy in percent, ± one deviation; replace-one, delta 0.01. * tuned on test. CIFAR-10 has 125 private "
        "rows: 1,000 are each row eight times, 10,000 eighty times, which no method takes into account."
    )
    return _cells("Figure 1, classification: accuracy", words, results["accuracy"], _ACCURACY, 2)


def _cells(title: str, words: str, cells: Sequence[Any], columns: Mapping[str, str], digits: int) -> Table:
    kept = {name: words for name, words in columns.items() if any(name in cell["values"] for cell in cells)}
    rows = []
    for cell in cells:
        values = cell["values"]
        texts = [shown(values[name], digits) if name in values else "-" for name in kept]
        rows.append([cell["set"], f"{cell['n']:,}", f"{cell['epsilon']:g}", *texts])
    return {"title": title, "words": words, "header": ["set", "rows", "epsilon", *kept.values()], "rows": rows}


def _sentiment(results: Results) -> Table:
    columns = {
        "paper 4": "Algorithm 1, ε 4 *",
        "paper 10": "Algorithm 1, ε 10 *",
        "DM": "DM, not private",
        "ours 4": "ours, ε 4",
        "ours 10": "ours, ε 10",
        "public": "public only",
    }
    rows = []
    for row in results["sentiment"]:
        printed = dict(zip(("paper 4", "paper 10", "DM"), TABLE_5[row["source"], row["target"]], strict=True))
        texts = [_beside(row["values"][name], printed.get(name), 3) for name in columns]
        rows.append([f"{row['source']} → {row['target']}", *texts])
    words = (
        "Mean squared error over the variance of the test labels; the paper's figure, whose scale it does not say, "
        "in brackets. 500 + 200 public reviews, 300 private ones, 1,000 to test. * tuned on test."
    )
    return {"title": "Table 5: sentiment", "words": words, "header": ["pair", *columns.values()], "rows": rows}


def _regression(results: Results) -> Table:
    words = (
        "Mean squared error over that of a model of the target alone; the paper's figure in brackets. (6) is the exact "
        "minimiser of problem (6), Algorithm 1 what the paper runs to find it, without noise."
    )
    title = "Tables 1 and 3: regression without privacy"
    return _by_set(title, words, results["regression"], REGRESSION_METHODS, TABLE_1_AND_3, 3)


def _classification(results: Results) -> Table:
    words = "Accuracy in percent; the paper's figure in brackets. Algorithm 2 is run without noise."
    title = "Tables 2 and 6: classification without privacy"
    return _by_set(title, words, results["classification"], CLASSIFICATION_METHODS, TABLE_2_AND_6, 2)


def _by_set(title: str, words: str, results: Any, methods: Sequence[str], printed: Any, digits: int) -> Table:
    rows = [
        [row["set"], *(_beside(row["values"][method], printed[row["set"]].get(method), digits) for method in methods)]
        for row in results
    ]
    return {"title": title, "words": words, "header": ["set", *methods], "rows": rows}


def _beside(values: Sequence[float], printed: tuple[float, float] | None, digits: int) -> str:
    return shown(values, digits) + (f" [{printed[0]:.{digits}f}]" if printed else "")


def _privacy(results: Results) -> Table:
    rows = [
        [
            f"{row['claimed']:g}",
            f"{row['algorithm']:.4f}",
            f"{row['algorithm, pld']:.4f}",
            f"{row['delta']:.2g}",
            f"{row['method']:.4f}",
            f"{row['method, pld']:.4f}",
            "yes" if row["algorithm"] <= row["claimed"] else "no",
            "yes" if row["method"] <= row["claimed"] else "no",
        ]
        for row in (results["privacy"]["rows"] if results["privacy"] else ())
    ]
    header = [
        "claimed ε",
        "Algorithm 1 or 2: true ε",
        "by PLD",
        "delta at the claim",
        "whole method: true ε",
        "by PLD",
        "algorithm's claim holds",
        "method's claim holds",
    ]
    words = (
        "At delta 0.01, with both sensitivities of Lemma 4.2 attained. True costs by closed forms and by privacy-loss "
        "distributions. The whole method spends half of epsilon on the discrepancy."
    )
    return {"title": "What the printed noise costs", "words": words, "header": header, "rows": rows}


# Figure 1's dashed line is drawn dashed, below the first line in the legend.
_DRAWN = {"ours": "ours", "no noise": "paper without noise"}


def curves(results: Results) -> Iterator[dict[str, Any]]:
    """Yield one chart per set: error, or accuracy, by rows; a panel per epsilon."""
    shown_lines = {
        "figure 1": ("error, 1 is no model", {**_DRAWN, "paper": "paper, tuned on test", "exact": "exact noise"}),
        "figure 3": ("error, 1 is no model", {"ours": "ours", "paper": "paper, alpha 1", "private DM": "private DM"}),
        "accuracy": ("accuracy, percent", {**_DRAWN, "paper": "as printed", "exact": "exact, averaged"}),
    }
    for part, (axis, names) in shown_lines.items():
        for name in dict.fromkeys(cell["set"] for cell in results[part]):
            cells = [cell for cell in results[part] if cell["set"] == name]
            panels = [
                _panel([cell for cell in cells if cell["epsilon"] == e], e, names)
                for e in dict.fromkeys(cell["epsilon"] for cell in cells)
            ]
            title = {"figure 1": name, "figure 3": f"{name}, Figure 3", "accuracy": f"{name}, accuracy"}[part]
            yield {"title": title, "axis": axis, "panels": panels}
    gas = [cell for cell in results["figure 1"] if "noisy SGD" in cell["values"]]
    if gas:
        names = {"ours": "ours", "paper": "paper, tuned on test", "noisy SGD": "noisy SGD, tuned on test"}
        panels = [
            _panel([cell for cell in gas if cell["epsilon"] == e], e, names)
            for e in dict.fromkeys(cell["epsilon"] for cell in gas)
        ]
        yield {"title": "Gas, Figure 2", "axis": "error, 1 is no model", "panels": panels}


def _panel(cells: Sequence[Any], epsilon: float, names: Mapping[str, str]) -> dict[str, Any]:
    lines = []
    for key, name in {**names, "not private": "target, not private"}.items():
        points = [
            {"n": cell["n"], "mean": mean(cell["values"][key]), "spread": spread(cell["values"][key])}
            for cell in cells
            if key in cell["values"]
        ]
        if points:
            lines.append({"name": name, "points": points, "dashed": key in ("no noise", "not private")})
    public = mean([mean(cell["values"]["public"]) for cell in cells])
    return {"epsilon": epsilon, "lines": lines, "levels": [{"name": "public only", "value": public}]}


def summarise(results: Results) -> dict[str, Any]:
    """Return the claims, tables and curves as plain data."""
    return {
        "version": results["versions"]["dpadapt"],
        "facts": facts(results),
        "claims": verdicts(results),
        "tables": list(tables(results)),
        "curves": list(curves(results)),
    }


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as Printed

    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or pipe does not wrap, so there is room for the widest table.
        console = Console(highlight=False, width=180)
    for table in tables(results):
        printed = Printed(Column(table["header"][0], no_wrap=True), *table["header"][1:], title=table["title"])
        for row in table["rows"]:
            printed.add_row(*(text.replace("[", r"\[") for text in row))
        console.print(printed)
        console.print(table["words"], markup=False)
    judged = Printed("claim", "paper", "measured", "verdict", title="claims")
    for row in verdicts(results):
        style = "red" if row["verdict"] == "missed" else None
        judged.add_row(row["claim"], row.get("paper", ""), row["measured"], row["verdict"], style=style)
    console.print(judged)
    for sentence in facts(results):
        console.print(sentence, markup=False)


def markdown(results: Results, group: str) -> str:
    """Return the claims and the tables of a group of `GROUPS` for the documentation."""
    others = [part for name, parts in GROUPS.items() if name != group for part in parts]
    own = {**results, **dict.fromkeys(others, ())}
    sentences = facts(own)
    first = 2 + bool(own["figure 1"])
    parts = [f"Printed by `python -m benchmarks adaptation --only {group}`. {' '.join(sentences[:first])}"]
    rows = [[row["claim"], row.get("paper", ""), row["measured"], row["verdict"]] for row in verdicts(own)]
    parts.append(pipes(["claim", "paper", "measured", "verdict"], rows))
    for table in tables(own):
        parts += [f"**{table['title']}.** {table['words']}", pipes(table["header"], table["rows"])]
    if sentences[first:]:
        parts.append("\n".join(f"- {sentence}" for sentence in sentences[first:]))
    return "\n\n".join(parts) + "\n"


def markers(group: str) -> tuple[str, str]:
    """Return the markers of a group's tables on the page of the paper."""
    return f"<!-- bench adaptation: {group} -->", f"<!-- end of bench adaptation: {group} -->"


def write_markdown(results: Results, path: Path) -> None:
    """Write the tables of the groups that were measured between their markers of a documentation page."""
    for group, parts in GROUPS.items():
        if any(results[part] for part in parts):
            write_between(path, markdown(results, group), *markers(group))
            if "measured on" in results["versions"]:
                state_run(path, f"python -m benchmarks adaptation --only {group}", results["versions"])
