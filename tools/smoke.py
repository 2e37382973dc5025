"""Check an installed dpadapt from outside: names, a fit, saving and loading, pages, and the command.

    python -I tools/smoke.py

`tools/release_check.py` runs it in new environments. It needs nothing but the core, and takes some seconds.
"""

import importlib
import pkgutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

import dpadapt
from dpadapt.datasets.bundled import breast_cancer
from dpadapt.report.ledger import ledger_page, summarise_ledger

# Modules that import an extra when they are imported themselves.
NEEDS_EXTRA = ("dpadapt.networks", "dpadapt.integrations.flower")


def check_names() -> int:
    """Import every public name and every module of the core; return the number of modules."""
    for name in dpadapt.__all__:
        assert getattr(dpadapt, name).__name__ == name, name
    modules = [
        module.name
        for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt.", onerror=lambda name: None)
        if not module.name.startswith(NEEDS_EXTRA)
    ]
    for module in modules:
        importlib.import_module(module)
    return len(modules)


def check_fit(folder: Path) -> float:
    """Fit on bundled data, charge a ledger, save, load and predict; return the accuracy on public rows."""
    frame = breast_cancer().frame
    X, y = frame.drop(columns="benign").to_numpy(), frame["benign"].to_numpy()
    public = dpadapt.Public(X[:280], y[:280])
    ledger = dpadapt.Ledger.open(folder / "rows.ledger", epsilon=3.0, delta=1e-6, dataset="breast cancer")
    model = dpadapt.PrivateTransferClassifier(epsilon=1.0, delta=1e-6).fit(
        X[280:], y[280:], public=public, ledger=ledger
    )
    model.privacy_.verify()
    assert 0 < ledger.spent() <= 1.0 + 1e-6
    dpadapt.save(model, folder / "model")
    loaded = dpadapt.load(folder / "model").model
    assert np.array_equal(loaded.predict(X), model.predict(X))
    # The templates of pages are part of what is installed.
    assert "breast cancer" in ledger_page(summarise_ledger(ledger, "rows.ledger"))
    assert "epsilon" in model.privacy_._repr_html_()
    return float(np.mean(loaded.predict(X[:280]) == y[:280]))


def check_command() -> str:
    """Run the installed command; return its version."""
    command = Path(sys.executable).with_name("dpadapt")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    assert version == dpadapt.__version__ == metadata.version("dpadapt")
    shown = subprocess.run([command, "demo", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--out" in shown
    return version


def main() -> None:
    """Run all checks, and say what was checked."""
    where = Path(dpadapt.__file__).resolve()
    assert where.is_relative_to(Path(sys.prefix).resolve()), f"{where}: this is not an installed package"
    modules = check_names()
    with tempfile.TemporaryDirectory() as folder:
        accuracy = check_fit(Path(folder))
    version = check_command()
    print(
        f"dpadapt {version}, Python {sys.version.split()[0]}: {len(dpadapt.__all__)} names, {modules} modules, a fit "
        f"(accuracy {accuracy:.2f} on public rows), a saved model, pages and the command work."
    )


if __name__ == "__main__":
    main()
