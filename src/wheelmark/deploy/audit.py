"""Is what is installed still what was installed? The receipt in the state directory against the disk, all of it hashed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from wheelmark.deploy.disk import (
    COPY,
    difference,
    files_in,
    other_distributions,
    recorded_startup_files,
    shadowing,
    startup_files,
    wrong_bytecode,
)
from wheelmark.deploy.interpreter import Interpreter, read_interpreter
from wheelmark.deploy.receipt import Receipt, Receipts
from wheelmark.errors import Exit, InputError
from wheelmark.verify.verdict import Refusal, exit_code, refusal, worst


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found about one distribution."""

    name: str
    receipt: Receipt | None
    findings: tuple[Refusal, ...]

    @property
    def exit_code(self) -> Exit:
        """OK only where there is a receipt and everything is as it says."""
        if not self.findings:
            return Exit.OK
        return worst(exit_code(item) for item in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The audit for ``--json``."""
        about = self.receipt
        return {
            "name": self.name,
            "exit_code": int(self.exit_code),
            "version": about.version if about else "",
            "wheel": about.wheel if about else "",
            "wheel_sha256": about.wheel_sha256 if about else "",
            "files": len(about.files) if about else 0,
            "findings": [
                {"reason": item.reason, "subject": item.subject, "text": item.text} for item in self.findings
            ],
        }


def audit_environment(python: Path, *, name: str = "", state: Path | None = None) -> tuple[Audit, ...]:
    """Audit what was installed into an interpreter's environment.

    Args:
        python: Its interpreter.
        name: One distribution; empty: all that there are receipts of.
        state: The state directory; default: this user's.

    Raises:
        MachineError: The interpreter does not answer (``python``).
    """
    interpreter = read_interpreter(python)
    sites = {
        site.resolve(): Receipts(site, state=state) for site in (interpreter.platlib, interpreter.purelib)
    }
    wanted = str(canonicalize_name(name)) if name else ""
    found = [
        _audit_one(receipts, held, interpreter)
        for receipts in sites.values()
        for held in receipts.names()
        if wanted in {"", held}
    ]
    if found:
        return tuple(found)
    text = f"no receipt of an installation into {interpreter.platlib}"
    absent = refusal(wanted or str(python), "receipt-absent", text)
    return (Audit(name=wanted or str(python), receipt=None, findings=(absent,)),)


def _audit_one(receipts: Receipts, name: str, python: Interpreter) -> Audit:
    try:
        receipt = receipts.read(name)
    except InputError as error:
        malformed = refusal(name, error.reason, error.what)
        return Audit(name=name, receipt=None, findings=(malformed,))
    if receipt is None:
        gone = refusal(name, "receipt-absent", "the receipt went away")
        return Audit(name=name, receipt=None, findings=(gone,))
    return Audit(name=name, receipt=receipt, findings=audit_receipt(receipt, python))


def audit_receipt(receipt: Receipt, python: Interpreter) -> tuple[Refusal, ...]:
    """Everything that differs from a receipt."""
    site = Path(receipt.site)
    if not (site / receipt.info).is_dir():
        gone = f"{receipt.info} is not there: {receipt.name} was uninstalled or replaced by another version"
        found = [refusal(receipt.info, "installed-missing", gone)]
        return (*found, *other_distributions(site, receipt.name, receipt.info))
    return tuple(_findings(receipt, site, python))


def _findings(receipt: Receipt, site: Path, python: Interpreter) -> Iterator[Refusal]:
    known = {Path(os.path.normpath(site / name)): item for name, item in receipt.files.items()}
    intact: set[Path] = set()
    for path, item in known.items():
        problem = difference(path, item.sha256)
        if problem is None:
            intact.add(path)
            continue
        if path == site / receipt.info / COPY:
            # Every installation by Wheelmark writes it anew; other installers remove it or never had it.
            yield refusal(_short(path, site), "installed-replaced", "another installer was here since")
        yield refusal(_short(path, site), *problem)
    owned = [Path(os.path.normpath(site / name)) for name in receipt.owned]
    try:
        extra = [path for path in files_in(owned) if path not in known]
        extra += shadowing(site, known, owned)
    except InputError as error:
        yield refusal(receipt.name, "installed-changed", error.what)
        return
    compiled = [path for path in extra if path.parent.name == "__pycache__"]
    for path in extra:
        if path not in compiled:
            yield refusal(
                _short(path, site), "installed-added", "it was not there when the wheel was installed"
            )
    yield from wrong_bytecode(compiled, intact, python, lambda path: _short(path, site))
    yield from other_distributions(site, receipt.name, receipt.info)
    for strange in strange_startup_files(site, python, receipt.startup):
        if strange.subject not in receipt.files:  # the wheel's own are compared above
            yield strange


def strange_startup_files(
    site: Path, python: Interpreter, known: Mapping[str, str], *, brought: Collection[str] = ()
) -> Iterator[Refusal]:
    """Files that every start of the interpreter runs, and that were not there, or said something else.

    Whoever can write such a file can write a distribution's metadata beside it, so what a RECORD says does not count.

    Args:
        site: Site-packages.
        python: The interpreter that would run them.
        known: What was there, as ``startup_files`` gives it.
        brought: Normalized names of distributions that were just installed from verified bytes: theirs may be new.
    """
    recorded = recorded_startup_files(site, brought)
    for name, sha256 in startup_files(site, python).items():
        if known.get(name) == sha256 or (name, sha256) in recorded:
            continue
        code, what = ("installed-changed", "changed") if name in known else ("installed-added", "put there")
        yield refusal(name, code, f"every start of the interpreter runs it, and it was {what} since")


def _short(path: Path, site: Path) -> str:
    return PurePosixPath(os.path.relpath(path, site)).as_posix()
