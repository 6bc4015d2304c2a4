"""Install a wheel from exactly the bytes that were verified.

Plan (the numbers stand in the code):

1. The interpreter and the machine are looked at; nothing installed is imported.
2. The wheel that fits is chosen, and copied with its lock into a private place while both are hashed (``source``).
3. The release, or the wheel, is verified under the policy. A refusal ends here, before anything was changed.
4. The copies' digests are compared with what was accepted.
5. What is installed already is looked at: another installer's or a damaged distribution, and dependencies in other
   versions than the lock's, are left alone unless ``replace`` says otherwise. A setuptools that came with a virtual
   environment, and that nothing there requires, is no such dependency: nobody chose its version.
6. Dependencies are installed from the lock: names, versions and hashes, nothing resolved.
7. The wheel is installed from its copy, by its own sha256.
8. What then lies on disk is compared with the wheel's files (``disk``); only then is there a receipt.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

import wheelmark
from wheelmark.deploy.audit import audit_receipt, strange_startup_files
from wheelmark.deploy.choose import AUTO, Offer
from wheelmark.deploy.disk import Layout, compare, layout_of, metadata_folders, startup_files
from wheelmark.deploy.interpreter import Interpreter, read_interpreter
from wheelmark.deploy.machine import Machine, Places, detect
from wheelmark.deploy.receipt import Receipt, Receipts, now_text, record_files, write_copy
from wheelmark.deploy.source import Source, copy_release, copy_wheel
from wheelmark.errors import CommandError, InputError, LockError, RejectedError, StateError
from wheelmark.packages import installer
from wheelmark.packages.pins import Pin, read_pins
from wheelmark.verify import AuditLog, Memory, Now, Policy, kind_of, verify
from wheelmark.verify.policy import Kind
from wheelmark.verify.verdict import Accepted, Report

_SHOWN = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody wants to have installed."""

    ref: Path
    """A release directory or a wheel."""
    python: Path
    """Interpreter of the environment that it goes to."""
    target: str = AUTO
    channel: str = ""
    bundles: tuple[Path, ...] = ()
    """Further bundles for a lone wheel."""
    without_card: bool = False
    """The environment is made for another machine: card and driver are not looked at. Only with a target id."""
    dependencies: bool = True
    dry_run: bool = False
    replace: bool = False
    """Install over what somebody else put there, and change the versions of dependencies that are there."""
    program: str = ""
    """``uv`` or ``pip``; empty: uv where it is there."""

    @property
    def is_wheel(self) -> bool:
        """Whether ``ref`` is one wheel, and no release directory.

        Raises:
            InputError: It is neither (``not-a-release``).
        """
        kind = kind_of(self.ref)
        if kind not in {Kind.WHEEL, Kind.RELEASE}:
            raise InputError(
                f"{self.ref} is a {kind.value}, and not something that is installed into an environment",
                fix="name a release directory or a wheel",
                reason="not-a-release",
            )
        return kind is Kind.WHEEL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was done, or would be."""

    report: Report
    """Of the verification; where it did not accept, nothing else was done."""
    machine: Machine
    source: Source | None = None
    accepted: Accepted | None = None
    """The verdict that vouches for what is installed."""
    plan: tuple[str, ...] = ()
    """In words, what is installed and what is changed."""
    receipt: Receipt | None = None
    receipt_path: Path | None = None
    already: bool = False
    """The very same wheel was there, and intact."""

    def as_json(self) -> dict[str, Any]:
        """The outcome for ``--json``."""
        choice = self.source.choice if self.source else None
        return {
            "exit_code": int(self.report.exit_code),
            "machine": self.machine.as_json(),
            "target": choice.target if choice else "",
            "why": list(choice.why) if choice else [],
            "wheel": self.source.wheel.file_name if self.source else "",
            "wheel_sha256": self.source.taken.sha256 if self.source else "",
            "plan": list(self.plan),
            "installed": self.receipt is not None,
            "already": self.already,
            "receipt": str(self.receipt_path or ""),
            "report": self.report.as_json(),
        }


def install(
    request: Request,
    policy: Policy,
    *,
    now: Now,
    state: Path | None = None,
    places: Places | None = None,
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Verify, choose, install, and compare what lies on disk.

    Args:
        request: What is wanted.
        policy: Whom to trust and what to ask for.
        now: The verifier's clock, with a zone, or what tells it (``machine_clock``).
        state: The state directory; default: this user's.
        places: Where the machine is looked at.
        memory: What this machine has seen; see ``verify``.
        audit_log: Where the report is written down, before anything is accepted.
        progress: Called with a line for people at each step.

    Raises:
        MachineError: Nothing fits this machine.
        RejectedError: Something was exchanged between verification and installation (``file-digest``), or what lies
            on disk is not what was verified (``installed-changed``, ``installed-missing``, ``installed-added``).
        StateError: Somebody else's or a damaged distribution is there (``installed-foreign``, ``installed-damaged``),
            or dependencies in other versions (``dependency-conflict``).
        LockError: The lock is malformed, its packages are not to be had, or something that the wheel needs is neither
            in it nor installed (``lock-open``).
        ToolError: Neither uv nor pip is there.
        CommandError: The installer failed.
    """
    python = read_interpreter(request.python)  # 1
    machine = detect(python, places)
    with contextlib.ExitStack() as held:
        source: Source | None = None
        problem: Exception | None = None
        try:
            source = _copied(request, machine, held)  # 2
        except Exception as error:  # noqa: BLE001 - raised below: what verification has to say goes before
            problem = error
        report = verify(  # 3
            request.ref,
            policy,
            now=now,
            bundles=request.bundles,
            channel=request.channel,
            memory=memory,
            audit_log=audit_log,
        )
        if not report.accepted:
            return Outcome(report=report, machine=machine)
        if source is None:
            raise problem or StateError("there is nothing to install")
        accepted = source.check(report)  # 4
        layout = layout_of(source.wheel, python)
        receipts = Receipts(layout.site, state=state)
        work = _Work(
            request=request,
            policy=policy,
            python=python,
            source=source,
            layout=layout,
            receipts=receipts,
            accepted=accepted,
            progress=progress,
        )
        done = Outcome(report=report, machine=machine, source=source, accepted=accepted)
        if request.dry_run:
            return dataclasses.replace(done, plan=work.plan())
        with receipts.held():
            plan = work.plan()  # 5
            if (there := work.intact()) is not None:
                path = receipts.folder / f"{there.name}.json"
                return dataclasses.replace(done, plan=plan, receipt=there, receipt_path=path, already=True)
            for line in plan:
                if line.startswith(("replace", "change", "keep")):
                    progress(line)
            receipt, path = work.carry_out()  # 6, 7, 8
        return dataclasses.replace(done, plan=plan, receipt=receipt, receipt_path=path)


def _copied(request: Request, machine: Machine, held: contextlib.ExitStack) -> Source:
    if request.is_wheel:
        return copy_wheel(
            request.ref, machine, held, target=request.target, without_card=request.without_card
        )
    return copy_release(
        request.ref,
        machine,
        held,
        target=request.target,
        without_card=request.without_card,
        lock=request.dependencies,
    )


@dataclasses.dataclass(kw_only=True)
class _Work:
    """One installation, after everything was verified."""

    request: Request
    policy: Policy
    python: Interpreter
    source: Source
    layout: Layout
    receipts: Receipts
    accepted: Accepted
    progress: Callable[[str], None]

    @property
    def offer(self) -> Offer:
        return self.source.choice.wheel

    def plan(self) -> tuple[str, ...]:
        """What will be done, in words; refuses what must not be done."""
        lines = [f"install {self.source.wheel.file_name} into {self.layout.site}"]
        lines += [
            f"keep {name!r}: it was there before, and every start of the interpreter runs it"
            for name in startup_files(self.layout.site, self.python)
            if self.layout.site / name not in self.layout.files
        ]
        standing = self._standing()
        if standing:
            code, text = standing
            if not self.request.replace:
                raise StateError(
                    text,
                    cause="it was not installed by wheelmark, or was changed since",
                    fix="look at it; then --replace, or another environment (--python)",
                    reason=code,
                )
            lines.append(f"replace: {text}")
        changes = dict(self._changes())
        seeds = self.python.replaceable
        conflicts = {name: pair for name, pair in changes.items() if pair[0] and name not in seeds}
        if conflicts and not self.request.replace:
            shown = "; ".join(f"{name} {have} (lock: {want})" for name, (have, want) in conflicts.items())
            raise StateError(
                f"packages are installed in other versions than those the wheel was tested with: {shown}",
                cause="the environment was made for something else as well",
                fix="--no-deps keeps them, --replace changes them; best is an environment of its own (--python)",
                reason="dependency-conflict",
            )
        self._check_closed({**self.python.packages, **{pin.name: pin.version for pin in self.pins()}})
        for name, (have, want) in changes.items():
            seed = " (came with the environment)" if name in seeds else ""
            lines.append(f"change {name} {have} to {want}{seed}" if have else f"install {name} {want}")
        return tuple(lines)

    def pins(self) -> tuple[Pin, ...]:
        """What the lock says for this interpreter."""
        if self.source.lock is None:
            return ()
        markers = {**self.python.markers, "extra": ""}
        return tuple(pin for pin in read_pins(self.source.lock.path) if pin.applies(markers))

    def _changes(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Locked packages that are not installed in the locked version: the version there is, and the locked one."""
        for pin in self.pins():
            have = self.python.packages.get(pin.name, "")
            if not have or not pin.matches(have):
                yield pin.name, (have, pin.version)

    def _standing(self) -> tuple[str, str] | None:
        """What is installed under this name and is not ours, or not as we left it."""
        name = self.layout.name
        if self.receipts.pending(name).exists():
            return None  # ours, interrupted
        try:
            receipt = self.receipts.read(name)
        except InputError as error:
            return error.reason, error.what
        folders = metadata_folders(self.layout.site, name)
        if receipt is None:
            there = folders or [folder for folder in self.layout.owned if folder.exists()]
            text = f"{there[0].name} was put there by something else" if there else ""
            return ("installed-foreign", text) if there else None
        findings = audit_receipt(receipt, self.python) if folders else ()  # without, it was uninstalled
        first = next(iter(findings), None)
        text = f"{receipt.info} was changed since: {first.subject}: {first.text}" if first else ""
        return ("installed-damaged", text) if first else None

    def intact(self) -> Receipt | None:
        """The receipt of the very same wheel, where everything that it says still holds and nothing is to change."""
        if self.request.replace or self.receipts.pending(self.layout.name).exists():
            return None
        receipt = self.receipts.read(self.layout.name)
        if receipt is None or receipt.wheel_sha256 != self.source.taken.sha256 or any(self._changes()):
            return None
        return None if audit_receipt(receipt, self.python) else receipt

    def _check_closed(self, packages: Mapping[str, str]) -> None:
        """Everything that the wheel needs is there, or will be."""
        for requirement in self.offer.requirements:
            name = canonicalize_name(requirement.name)
            # torch behind an extra is one that no lock and no index may bring, not one that may be lacking.
            extra = "torch" if name == "torch" else ""
            if requirement.marker is not None and not requirement.marker.evaluate(
                {**self.python.markers, "extra": extra}
            ):
                continue
            have = packages.get(name, "")
            if not have or not requirement.specifier.contains(have, prereleases=True):
                wanted = f"{requirement.name}{requirement.specifier}"
                raise LockError(
                    f"{self.layout.name} needs {wanted}, and "
                    + (f"{have} is there" if have else "neither the lock nor the environment has it"),
                    cause="the lock leaves it to this machine (torch for ROCm has an index of its own), or none is used",
                    fix=f"install {wanted} into this environment first",
                    reason="lock-open",
                )

    def carry_out(self) -> tuple[Receipt, Path]:
        """Steps 6 to 8."""
        taken = self.source.taken
        folder = taken.path.parent
        startup = startup_files(self.layout.site, self.python)
        if any(self._changes()):
            self._dependencies(folder)
        self.progress(f"installing {self.source.wheel.file_name}")
        self.receipts.begin(self.layout.name, taken.sha256)
        line = f"{self.layout.name} @ {taken.path.as_uri()} --hash=sha256:{taken.sha256}\n"
        program = self._run(
            folder,
            "wheel.txt",
            line,
            self.source.wheel.file_name,
            {self.layout.name},
            # Nothing cached is taken for it, nothing on disk is shared with a cache, and nothing is compiled.
            uv_options=("--no-cache", "--link-mode", "copy", "--reinstall-package", self.layout.name),
            local=True,
            pip_options=("--force-reinstall", "--no-compile", "--no-cache-dir", "--no-warn-script-location"),
        )
        self._recheck(startup)
        return self._receipt(program)

    def _dependencies(self, folder: Path) -> None:
        """Step 6."""
        pins = self.pins()
        self.progress(f"installing {len(pins)} packages of the lock")
        text = "".join(dataclasses.replace(pin, marker="").lines() for pin in pins)
        label = self.source.lock.path.name if self.source.lock else "the lock"
        self._run(folder, "dependencies.txt", text, label, {pin.name for pin in pins})
        self.python = read_interpreter(self.request.python)
        if left := [f"{name} {have or 'absent'}" for name, (have, _) in self._changes()]:
            raise LockError(
                f"the installer did not install what {label} says: {', '.join(left)}", reason="lock-mismatch"
            )

    def _run(
        self,
        folder: Path,
        name: str,
        text: str,
        label: str,
        names: set[str],
        *,
        uv_options: Sequence[str] = (),
        pip_options: Sequence[str] = (),
        local: bool = False,
    ) -> str:
        requirements = folder / name
        requirements.write_text(text, encoding="utf-8")
        try:
            return installer.install(
                self.python.path,
                requirements,
                folder=folder,
                program=self.request.program,
                uv_options=uv_options,
                pip_options=pip_options,
                local=local,
            )
        except CommandError as error:
            found = installer.explain(error, names, label)
            # Whoever installs cannot lock anew: the lock is what the release was tested with.
            found.fix = (
                "give pip an index or find-links with these very files, and run the same command again"
            )
            raise found from error

    def _recheck(self, startup: Mapping[str, str]) -> None:
        """Step 8."""
        findings = [
            *compare(self.layout, self.source.taken.sha256, self.python)[0],
            *strange_startup_files(
                self.layout.site,
                self.python,
                startup,
                brought={self.layout.name, *(pin.name for pin in self.pins())},
            ),
        ]
        if findings:
            lines = [f"  {item.subject}: {item.reason}: {item.text}" for item in findings[:_SHOWN]]
            more = f"\n  and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
            raise RejectedError(
                "what lies on disk is not what was verified:\n" + "\n".join(lines) + more,
                cause="left over from something else, or somebody writes to this environment",
                fix=f"do not use it: remove {self.layout.name}, and install into a new environment",
                reason=findings[0].reason,
            )

    def _receipt(self, program: str) -> tuple[Receipt, Path]:
        layout, taken, source = self.layout, self.source.taken, self.source
        _, paths = compare(layout, taken.sha256, self.python)
        write_copy(layout, record_files(paths, layout), taken.sha256)
        findings, paths = compare(layout, taken.sha256, self.python)
        files = record_files(paths, layout)
        if findings or any(
            files[layout.short(path)].sha256 != due for path, due in layout.files.items() if due
        ):
            raise RejectedError(
                "the installed files changed while the receipt was written", reason="installed-changed"
            )
        receipt = Receipt(
            name=layout.name,
            version=str(source.wheel.version),
            target=source.choice.target,
            wheel=source.wheel.file_name,
            wheel_sha256=taken.sha256,
            release_sha256="" if self.request.is_wheel else source.sha256,
            lock_sha256=source.lock.sha256 if source.lock else "",
            policy=self.policy.source,
            policy_sha256=self.policy.sha256,
            channel=self.request.channel,
            root=self.accepted.root,
            level=self.accepted.level,
            signer=self.accepted.signer,
            identity=self.accepted.identity,
            issuer=self.accepted.issuer,
            signed=self.accepted.time.isoformat(),
            installed=now_text(),
            wheelmark=wheelmark.__version__,
            installer=program,
            python=str(self.python.path),
            site=str(self.receipts.site),
            info=layout.info.name,
            owned=tuple(layout.short(folder) for folder in layout.owned),
            unchecked=("card",) if source.choice.card_unchecked else (),
            files=files,
            startup=startup_files(layout.site, self.python),
        )
        return receipt, self.receipts.write(receipt)
