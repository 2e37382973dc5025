"""Build the wheel and the sdist, check what they contain, and try each of them in a new environment.

    python tools/release_check.py [PYTHON ...]

Each PYTHON is an interpreter to try, such as python3.12; default: the one that runs this file. The files are left in
dist/. Needs `build`; `make release-check` sets it up.
"""

import argparse
import email
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What the sdist holds: the package, and what is needed to test and to read it.
SDIST_PARTS = {
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "PAPERS.md", "PKG-INFO", "README.md",
    "SECURITY.md", ".gitignore", "benchmarks", "conftest.py", "docs", "examples", "pyproject.toml", "src", "tests",
    "tools",
}  # fmt: skip
# Bytes. An sdist had 1.7 million and a wheel 0.8 million when this was written; data or an environment would have more.
LARGEST_FILE = 4_000_000
# Parts of a path that no file of a release has.
UNWANTED = re.compile(
    r"(^|/)(\.venv[^/]*|\.ci|\.git|__pycache__|\.\w+_cache|\.hypothesis|results|dist|build)(/|$)|\.pyc$"
)


def complaints(names: Sequence[str], *, parts: set[str], needed: set[str]) -> list[str]:
    """Return what is wrong with the paths in a distribution: others than `parts` at the top, noise, missing ones."""
    top = {name.split("/")[0] for name in names}
    found = [f"{name} does not belong there" for name in sorted(top - parts)]
    found += [f"{name} does not belong there" for name in names if UNWANTED.search(name)]
    return found + [f"{name} is missing" for name in sorted(needed - set(names))]


def untracked(names: Sequence[str]) -> list[str]:
    """Return which paths of an sdist git does not know: tables and ledgers that somebody left in a folder of docs."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        return []
    return [
        f"{name} is not in the repository" for name in sorted(set(names) - {"PKG-INFO", *listed.stdout.split("\n")})
    ]


def check_contents(sdist: Path, wheel: Path, version: str) -> list[str]:
    """Return what is wrong with the contents and the metadata of both files."""
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
        needed = {"LICENSE", "CITATION.cff", "CHANGELOG.md", "src/dpadapt/py.typed", "tests/conftest.py"}
        found = complaints(names, parts=SDIST_PARTS, needed=needed) + untracked(names)
        print(f"{sdist.name}: {len(names)} files, {sdist.stat().st_size:,} bytes")
    info = f"dpadapt-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        needed = {f"{info}/licenses/LICENSE", "dpadapt/py.typed", "dpadapt/report/templates/base.html.j2"}
        found += complaints(names, parts={"dpadapt", info}, needed=needed)
        fields = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size:,} bytes")
    wanted = {"Version": version, "License-Expression": "BSD-3-Clause", "Requires-Python": ">=3.11"}
    found += [f"{name} is {fields[name]}, not {value}" for name, value in wanted.items() if fields[name] != value]
    return found + [f"{file.name} is large" for file in (sdist, wheel) if file.stat().st_size > LARGEST_FILE]


def try_out(file: Path, python: str) -> None:
    """Install a file into a new environment, and run tools/smoke.py there, far from the source."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        own = f"{folder}/venv/bin/python"
        subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file], check=True)
        # Isolated: neither this folder nor PYTHONPATH may hide what the file lacks.
        subprocess.run([own, "-I", "-W", "error::UserWarning", ROOT / "tools" / "smoke.py"], check=True, cwd=folder)


def main() -> None:
    """Build, check and try out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    pythons = parser.parse_args().pythons
    source = (ROOT / "src" / "dpadapt" / "__init__.py").read_text(encoding="utf-8")
    version = str(re.findall(r'^__version__ = "(.+)"$', source, re.M)[0])
    dist = ROOT / "dist"
    for old in dist.glob("dpadapt-*"):
        old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", dist, ROOT], check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    found = check_contents(sdist, wheel, version)
    if found:
        raise SystemExit("\n".join(found))
    for python in pythons:
        for file in (wheel, sdist):
            print(f"{python}, {file.suffix[1:]}: ", end="", flush=True)
            try_out(file, python)


if __name__ == "__main__":
    main()
