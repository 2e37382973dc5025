"""The command line: `dpadapt`. `main` is its entry point."""

from dpadapt.cli.app import main

__all__ = ["main"]
