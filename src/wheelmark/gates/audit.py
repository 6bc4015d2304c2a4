"""The audit gate: every component of the SBOM is held against known vulnerabilities, or says why it cannot be.

``pip-audit`` asks and judges; this gate makes sure that its answer means something:

1. Each component is *queried*, *first-party*, or of a kind with *no service*; every locked package is a component.
2. The service is a setting: ``none``, ``online`` (PyPI's own advisories), an OSV endpoint's URL, or a folder of OSV files
   with a manifest. No service, no manifest, data that is too old or does not cover a package: UNCHECKED.
3. A package that is known to be vulnerable is asked first. A service that does not report it answers nothing
   (pip-audit alone would print "no known vulnerabilities"): UNCHECKED.
4. ``pip-audit --strict`` is run over the pins; each pin must be in its answer. One that is skipped, or absent, by a
   service that does answer is a failure: it should have been queried and was not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from packaging.utils import canonicalize_name

from wheelmark import strictjson
from wheelmark.attest.sbom import read_sbom, unexplained_files
from wheelmark.binaries.wheel import read_wheel
from wheelmark.config import Declaration
from wheelmark.errors import InputError, ToolError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates import advisories
from wheelmark.gates.components import Answer, Audited, classify, missing_pins
from wheelmark.gates.context import Context
from wheelmark.lock import read_pins

NAME = "audit"
SERVICE_VARIABLE = "WHEELMARK_ADVISORIES"
"""Environment variable that goes before ``gates.audit.service``: the same values."""
CONTROLS = (("jinja2", "2.10"), ("pyyaml", "5.3"), ("urllib3", "1.24"))
"""Packages and versions that every general advisory service reports (PYSEC-2019-217, PYSEC-2020-96, PYSEC-2019-133)."""
_TIMEOUT = 600
_SKIPPED = re.compile(r"ERROR:pip_audit\._cli:(?P<name>[A-Za-z0-9._-]+): (?P<why>.*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """An advisory service, open to be asked."""

    arguments: tuple[str, ...]
    """What pip-audit is told."""
    control: tuple[str, str]
    """A package and version that it must report."""
    about: Mapping[str, Any]
    """What evidence says of it."""
    data: advisories.Advisories | None = None
    """The folder's advisories, where it is one."""


class _UncheckedError(Exception):
    """The answer cannot be had; becomes an UNCHECKED verdict, never leaves this module."""

    def __init__(self, reason: str, summary: str) -> None:
        super().__init__(summary)
        self.reason = reason
        self.summary = summary


class _ServiceFailedError(Exception):
    """pip-audit gave no answer; what it printed, and the package that it skipped if that was why."""

    def __init__(self, text: str, skipped: str) -> None:
        super().__init__(text)
        self.text = text
        self.skipped = skipped


def run(context: Context) -> Evidence:
    """Judge one wheel's components.

    Raises:
        ToolError: pip-audit is not installed (``no-pip-audit``).
        LockError: The runtime lock is malformed.
    """
    return audit(context, now=dt.datetime.now(dt.UTC))


def audit(context: Context, *, now: dt.datetime) -> Evidence:
    """``run`` at a given time (which advisory data ages by)."""
    setting = service_setting(context.declaration)
    details: dict[str, Any] = {
        "service": {"kind": setting if setting in {"none", "online"} else "folder or URL"}
    }
    try:
        audited = _describe(context, details)
    except InputError as error:
        reason = error.reason if error.reason == "audit-unexplained" else "audit-sbom"
        return context.evidence(
            NAME, Verdict.FAILED, Level.STATIC, error.what, reason=reason, details=details
        )
    finding = _incomplete(context, audited)
    if finding:
        reason, summary = finding
        return context.evidence(NAME, Verdict.FAILED, Level.STATIC, summary, reason=reason, details=details)
    environment = environment_at(now)
    verdict, reason, summary = ask(audited, context.declaration, details, now=now)
    level = Level.NONE if verdict is Verdict.UNCHECKED else Level.STATIC
    return context.evidence(
        NAME, verdict, level, summary, reason=reason, details=details, environment=environment
    )


def environment_at(now: dt.datetime) -> dict[str, Any]:
    """What evidence says of the scanner.

    Raises:
        ToolError: pip-audit is not installed (``no-pip-audit``).
    """
    return {"pip-audit": _pip_audit_version(), "asked": now.isoformat(timespec="seconds")}


def ask(
    audited: Sequence[Audited], declaration: Declaration, details: dict[str, Any], *, now: dt.datetime
) -> tuple[Verdict, str, str]:
    """Ask the declared service for every Python package among components.

    Args:
        audited: The components.
        declaration: With the service.
        details: Of the evidence; what was asked, found and left out is written into it.
        now: Which advisory data ages by.

    Returns:
        Verdict, reason and summary.
    """
    pins = sorted({(item.package, item.version) for item in audited if item.answer is Answer.QUERIED})
    try:
        with _open(service_setting(declaration), declaration, now) as service:
            details["service"] = dict(service.about)
            answer = _ask(service, pins)
    except _UncheckedError as error:
        return Verdict.UNCHECKED, error.reason, error.summary
    return _judge(answer, pins, service, details)


def service_setting(declaration: Declaration) -> str:
    """The service that is asked: ``WHEELMARK_ADVISORIES``, or what the declaration says."""
    return os.environ.get(SERVICE_VARIABLE, "") or declaration.gates.audit.service


def _describe(context: Context, details: dict[str, Any]) -> tuple[Audited, ...]:
    """Step 1, the components; they stand in the evidence whatever the verdict."""
    sbom = read_sbom(context.sbom.read_bytes())
    files = {path: file.sha256 for path, file in read_wheel(context.wheel).files.items()}
    unexplained = unexplained_files(sbom, files)
    if unexplained:
        raise InputError(
            f"{len(unexplained)} files of the wheel are not those of the SBOM: {', '.join(unexplained[:5])}",
            reason="audit-unexplained",
        )
    audited = classify(sbom, project=context.declaration.project.name)
    details["components"] = [item.as_json() for item in audited]
    details["counts"] = {answer.value: sum(item.answer is answer for item in audited) for answer in Answer}
    return audited


def _incomplete(context: Context, audited: Sequence[Audited]) -> tuple[str, str] | None:
    """Step 1, what is missing: reason and summary of the first finding."""
    unexplained = [item for item in audited if item.answer is Answer.UNEXPLAINED]
    if unexplained:
        named = "; ".join(f"{item.component} ({item.why})" for item in unexplained[:5])
        return "audit-unexplained", f"{len(unexplained)} components cannot be audited: {named}"
    host = {"platform_machine": context.row.host.value}
    pins = [pin for pin in read_pins(context.lock) if pin.applies(host)]
    dropped = missing_pins(audited, pins)
    if dropped:
        return "audit-dropped", f"locked, but no component of the SBOM: {', '.join(dropped[:8])}"
    return None


@contextlib.contextmanager
def _open(setting: str, declaration: Declaration, now: dt.datetime) -> Iterator[Service]:
    """Step 2."""
    if setting == "none":
        raise _UncheckedError("audit-no-service", "no advisory service is set (gates.audit.service)")
    if setting == "online":
        yield Service(
            arguments=("--vulnerability-service", "pypi"),
            control=CONTROLS[0],
            about={"kind": "online", "source": "PyPI", "date": now.date().isoformat()},
        )
        return
    if setting.startswith(("https://", "http://")):
        yield Service(
            arguments=("--vulnerability-service", "osv", "--osv-url", setting),
            control=CONTROLS[0],
            about={"kind": "osv", "source": setting, "date": now.date().isoformat()},
        )
        return
    data = _folder(declaration.root / setting, now, declaration.gates.audit.max_age_days)
    control = data.control()
    if control is None:
        _unchecked(
            "audit-control", "no advisory of the folder lists an affected version to test the service with"
        )
    with advisories.serve(data) as url:
        yield Service(
            arguments=("--vulnerability-service", "osv", "--osv-url", url),
            control=control,
            about={
                "kind": "folder",
                "source": data.source,
                "date": data.date.isoformat(),
                "advisories": data.count,
                "coverage": "all" if data.packages is None else sorted(data.packages),
            },
            data=data,
        )


def _folder(folder: Path, now: dt.datetime, max_age_days: int) -> advisories.Advisories:
    try:
        data = advisories.read_advisories(folder)
    except InputError as error:
        reason = error.reason if error.reason.startswith("audit-") else "audit-data"
        raise _UncheckedError(reason, error.what) from error
    except OSError as error:
        raise _UncheckedError("audit-data", f"cannot read the advisories: {error.strerror}") from error
    age = (now.date() - data.date).days
    if age < 0:
        _unchecked("audit-date", f"the advisories are dated {data.date}, which is yet to come")
    if age > max_age_days:
        _unchecked(
            "audit-stale", f"the advisories of {data.source} are {age} days old; the limit is {max_age_days}"
        )
    return data


def _unchecked(reason: str, summary: str) -> NoReturn:
    raise _UncheckedError(reason, summary)


def _ask(service: Service, pins: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """Steps 3 and 4: name -> pip-audit's entry for each pin; ``{"skipped": name}`` entries for a skip."""
    name, version = service.control
    try:
        control = _pip_audit(service, [service.control])
    except _ServiceFailedError as error:
        raise _UncheckedError(
            "audit-service", f"the advisory service gives no answer: {error.text}"
        ) from error
    if not control.get(name, {}).get("vulns"):
        _unchecked(
            "audit-control",
            f"the advisory service does not report {name} {version}, which is known to be vulnerable",
        )
    if not pins:
        return {}
    try:
        return _pip_audit(service, pins)
    except _ServiceFailedError as error:
        if error.skipped:
            return {error.skipped: {"name": error.skipped, "skip_reason": error.text}}
        raise _UncheckedError("audit-service", f"the advisory service failed: {error.text}") from error


def _pip_audit(service: Service, pins: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Run pip-audit over exact pins and read its JSON.

    Raises:
        _ServiceFailedError: It printed no JSON: a skip (strict), no connection, or an answer it cannot read.
    """
    with tempfile.TemporaryDirectory(prefix="wheelmark-audit-") as name:
        folder = Path(name)
        requirements = folder / "pins.txt"
        requirements.write_text(
            "".join(f"{package}=={version}\n" for package, version in pins), encoding="utf-8"
        )
        command = [
            *(sys.executable, "-m", "pip_audit", "--strict", "--format", "json", "--progress-spinner", "off"),
            *(
                "--no-deps",
                "--disable-pip",
                "--requirement",
                str(requirements),
                "--aliases",
                "on",
                "--desc",
                "off",
            ),
            *("--cache-dir", str(folder / "cache"), "--timeout", "30", *service.arguments),
        ]
        environment = dict(os.environ)
        if service.data is not None:
            environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _ServiceFailedError(f"pip-audit did not end within {_TIMEOUT} s", "") from error
    return read_answer(done.stdout, done.stderr.decode(errors="replace"))


def read_answer(output: bytes, messages: str) -> dict[str, Any]:
    """The entries of pip-audit's JSON by package; the exit code is not asked, since 1 means two things.

    Raises:
        _ServiceFailedError: There is no JSON, or not the JSON that is known.
    """
    try:
        document = strictjson.load_object(output, what="pip-audit's answer")
        entries = document["dependencies"]
        return {canonicalize_name(entry["name"]): entry for entry in entries}
    except (InputError, KeyError, TypeError, AttributeError) as error:
        lines = [line for line in messages.strip().splitlines() if not line.startswith("WARNING:")]
        skipped = next((match for line in lines if (match := _SKIPPED.fullmatch(line))), None)
        text = skipped["why"] if skipped else (lines[-1] if lines else str(error))
        raise _ServiceFailedError(text[:500], skipped["name"] if skipped else "") from error


def _judge(
    answer: Mapping[str, Any], pins: Sequence[tuple[str, str]], service: Service, details: dict[str, Any]
) -> tuple[Verdict, str, str]:
    """Verdict, reason and summary from pip-audit's entries; what nobody answered for is written down in any case."""
    skips = [entry for entry in answer.values() if "skip_reason" in entry]
    absent = [f"{name} {version}" for name, version in pins if answer.get(name, {}).get("version") != version]
    outside = [name for name, _version in pins if service.data is not None and not service.data.covers(name)]
    if skips:
        details["skipped"] = [{"package": entry["name"], "why": entry["skip_reason"]} for entry in skips]
    elif absent:
        details["skipped"] = [{"package": item, "why": "not in pip-audit's answer"} for item in absent]
    if outside:
        details["outside_coverage"] = outside
    found = [
        _vulnerability(name, version, vulnerability, service)
        for name, version in pins
        for vulnerability in answer.get(name, {}).get("vulns", [])
    ]
    if found:
        details["vulnerabilities"] = found
        named = ", ".join(f"{item['id']} ({item['package']} {item['version']})" for item in found[:8])
        return Verdict.FAILED, "audit-vulnerable", f"{len(found)} known vulnerabilities: {named}"
    if skips:
        named = ", ".join(f"{entry['name']} ({entry['skip_reason']})" for entry in skips[:5])
        return Verdict.FAILED, "audit-skipped", f"should have been queried and was not: {named}"
    if absent:
        return Verdict.FAILED, "audit-skipped", f"not in pip-audit's answer: {', '.join(absent[:8])}"
    if outside:
        return (
            Verdict.UNCHECKED,
            "audit-coverage",
            f"the advisories do not cover {len(outside)} of {len(pins)} packages: {', '.join(outside[:8])}",
        )
    # Only where every package was asked does an empty list say that nothing was found.
    details["vulnerabilities"] = []
    return Verdict.PASSED, "", f"{len(pins)} packages queried, none with a known vulnerability"


def _vulnerability(name: str, version: str, found: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """One finding for the evidence; how bad it is where the folder's own advisory says so (pip-audit does not)."""
    aliases = sorted(found.get("aliases", []))
    value = {
        "package": name,
        "version": version,
        "id": found["id"],
        "aliases": aliases,
        "fixed_in": list(found.get("fix_versions", [])),
    }
    severities = service.data.severities({found["id"], *aliases}) if service.data is not None else ()
    if severities:
        value["severities"] = [{"method": method, "score": score} for method, score in severities]
    return value


def _pip_audit_version() -> str:
    if importlib.util.find_spec("pip_audit") is None:
        raise ToolError(
            "pip-audit is not installed",
            fix="python3 -m pip install --require-hashes -r lockfiles/tools.txt",
            reason="no-pip-audit",
        )
    return importlib.metadata.version("pip-audit")
