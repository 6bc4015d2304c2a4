"""A wheel installed by hand, file by file, so that a test can spoil exactly one thing of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wheelmaking
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.deploy.disk import Layout, compare, layout_of, startup_files
from wheelmark.deploy.interpreter import Interpreter
from wheelmark.deploy.receipt import Receipt, Receipts, record_files, write_copy

FILES = {
    "demo_kernels/__init__.py": b"VALUE = (1, 1.0, True, {2, 3})\n\n\ndef run():\n    return lambda: VALUE\n",
    "demo_kernels/_native.so": b"\x7fELF native",
    "demo_kernels/inner/part.py": b"def part():\n    return 'part'\n",
    "demo_kernels-1.0+cpu.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo_kernels:run\n",
}
INFO = "demo_kernels-1.0+cpu.dist-info"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installed:
    """A wheel whose files lie where an installer would have put them."""

    wheel: Wheel
    layout: Layout
    python: Interpreter
    site: Path

    def findings(self) -> dict[str, str]:
        """Place -> reason code, of a comparison with the wheel."""
        return {item.subject: item.reason for item in compare(self.layout, self.wheel.sha256, self.python)[0]}

    def keep_receipt(self, state: Path, **changes: Any) -> Receipt:
        """Write copy and receipt as an installation does at its end."""
        receipts = Receipts(self.site, state=state)
        _, paths = compare(self.layout, self.wheel.sha256, self.python)
        write_copy(self.layout, record_files(paths, self.layout), self.wheel.sha256)
        _, paths = compare(self.layout, self.wheel.sha256, self.python)
        texts = {
            field.name: ""
            for field in dataclasses.fields(Receipt)
            if field.name not in {"owned", "unchecked", "files", "startup"}
        }
        made = Receipt(
            **{
                **texts,
                "name": "demo-kernels",
                "version": "1.0+cpu",
                "wheel": self.wheel.file_name,
                "wheel_sha256": self.wheel.sha256,
                "site": str(receipts.site),
                "info": INFO,
                "owned": tuple(self.layout.short(folder) for folder in self.layout.owned),
                "unchecked": (),
                "files": record_files(paths, self.layout),
                "startup": startup_files(self.site, self.python),
                **changes,
            }
        )
        receipts.write(made)
        return made


def spread(environment: Interpreter, files: Mapping[str, bytes] = FILES) -> Installed:
    """Install a wheel by hand, with what installers add."""
    wheel = read_wheel(wheelmaking.wheel_bytes(files), name=wheelmaking.NAME)
    layout = layout_of(wheel, environment)
    site = environment.platlib
    for path in wheel.files:
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(wheel.read(path))
    script = environment.scripts / "demo"
    script.write_text("#!/usr/bin/python\nimport sys\nfrom demo_kernels import run\nsys.exit(run())\n")
    info = site / INFO
    url = {"url": "file:///wheel", "archive_info": {"hashes": {"sha256": wheel.sha256}}}
    additions = {"INSTALLER": "pip\n", "REQUESTED": "", "direct_url.json": json.dumps(url)}
    for name, text in additions.items():
        (info / name).write_text(text)
    names = [*wheel.files, *(f"{INFO}/{name}" for name in additions), layout.short(script)]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    return Installed(wheel=wheel, layout=layout, python=environment, site=site)
