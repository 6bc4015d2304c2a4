"""Write ``src/wheelmark/binaries/torch_shim.json``: each function of LibTorch's C shim and the release that had it first.

Run it in an environment with the newest ``torch-abi-audit`` (MIT licence), whose tables are taken from
PyTorch's own ``torch/csrc/stable/c/shim_function_versions.txt`` and from its headers at v2.9.0::

    python tests/goldens/torch_shim_table.py

``tests/integration/binaries/test_torch_headers.py`` compares the result with the headers of the torch that is
locked.
"""

import json
import re
from importlib.metadata import version
from pathlib import Path

from torch_abi_audit import torch_versions

OUTPUT = Path(__file__).resolve().parents[2] / "src/wheelmark/binaries/torch_shim.json"
FUNCTION = re.compile(r"(aoti_torch|torch)_\w+")


def main() -> None:
    """Write the table, functions grouped by release."""
    grouped: dict[str, list[str]] = {}
    for name, since in torch_versions.stable_shim_versions().items():
        if FUNCTION.fullmatch(name):
            grouped.setdefault(torch_versions.format_version(since), []).append(name)
    table = {
        "source": f"torch-abi-audit {version('torch-abi-audit')}, from pytorch/pytorch (BSD-3-Clause)",
        "functions": {
            since: sorted(grouped[since]) for since in sorted(grouped, key=torch_versions.parse_version)
        },
    }
    OUTPUT.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
