"""``python -m wheelmark_kernels.contract <subcommand> --report FILE``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

SUBCOMMANDS: Final = ("correctness", "performance", "interpret", "launch", "hardware")
"""Modules of this package, each with ``add_arguments(parser)`` and ``run(arguments) -> exit code``; only the one named is imported."""


def main(command_line: Sequence[str]) -> int:
    """Run one subcommand.

    Args:
        command_line: Without the program's name.

    Returns:
        The exit code (see the package's docstring).
    """
    chooser = argparse.ArgumentParser(prog="python -m wheelmark_kernels.contract", add_help=False)
    chooser.add_argument("subcommand", choices=SUBCOMMANDS)
    if not command_line or command_line[0] not in SUBCOMMANDS:
        chooser.parse_args(command_line[:1])
    name = command_line[0]
    module = importlib.import_module(f"{__package__}.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m wheelmark_kernels.contract {name}", description=module.__doc__
    )
    parser.add_argument(
        "--report", default="-", help="file for the JSON report; - (default): standard output"
    )
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(command_line[1:]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
