"""The command line: `dpadapt`. `main` is its entry point."""

from dpadapt.cli._app import main

__all__ = ["main"]
