"""Run the notebooks of docs/tutorials, which are stored as text, and print the CPU seconds of each.

`make docs` runs them too, when it builds the site. This is quicker, and fails if one takes too long:

    python tools/notebooks.py [NAME ...] [--keep FOLDER]

It needs jupytext, nbclient, ipykernel and matplotlib. `--keep` writes the notebooks with their outputs.
"""

import argparse
import resource
import sys
from pathlib import Path

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
# Seconds of CPU, start of the kernel included: a story that takes longer is not read.
MOST_SECONDS = 60.0


def children_seconds() -> float:
    """Return the CPU seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(path: Path, keep: Path | None) -> float:
    """Run one notebook and return its CPU seconds."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(path, fmt="md:myst")
    before = children_seconds()
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, keep / f"{path.stem}.ipynb")
    return children_seconds() - before


def main() -> int:
    """Run the notebooks that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="such as hospital; default: all")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    paths = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")
    slow = False
    for path in paths:
        if arguments.names and path.stem not in arguments.names:
            continue
        seconds = run(path, arguments.keep)
        slow |= seconds > MOST_SECONDS
        print(f"{path.stem}: {seconds:.1f} s of CPU", flush=True)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
