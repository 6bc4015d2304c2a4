"""The OCI hook that lets a container start only if its image was verified here and the policy takes it now.

A runtime starts it at ``createRuntime`` with the container's state on stdin (OCI runtime specification 1.2, ``config.md``
"POSIX-platform Hooks", ``runtime.md`` "State"), before anything of the image has run; an exit code other than 0 stops the
start. Plan (the numbers stand in the code):

1. The configuration is one that only the operator could have written. It stands in the hook's own arguments; the container,
   its annotations and its environment are not looked at.
2. The container's image is found in the engine's storage, by digests (``storage``).
3. An image that the configuration allows by digest starts. Any other has to be in the evidence store.
4. The policy is loaded, strictly, and applied to what the store keeps, with the clock of now. No network.
5. What an acceptance teaches is remembered, then the decision is written to the log: last, so that the line says what was
   answered. One that cannot be remembered or written down is a refusal.
6. A refusal goes to stderr and to syslog too: ``crun`` does not show the first, ``podman run`` not the second.

Whatever fails on the way is a refusal. So is an answer that takes too long: an engine that ends the hook ends the launcher
alone, and what that started would go on, and write an acceptance down of a container that was not started.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import os
import signal
import sys
import syslog
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from wheelmark import digests, strictjson
from wheelmark.deploy.hookconfig import SYSTEM, HookConfig, load_hook_config
from wheelmark.deploy.hooklauncher import ACCEPTED, FLAG
from wheelmark.deploy.hookoutput import check_output
from wheelmark.deploy.storage import EngineImage, image_of_container
from wheelmark.deploy.store import EvidenceStore, ImageEvidence
from wheelmark.errors import INTERRUPTS, ConfigError, InputError, RejectedError, WheelmarkError
from wheelmark.oci import types
from wheelmark.verify import AuditLog, Memory, alone
from wheelmark.verify.circumstances import Circumstances, Now, machine_clock, time_of
from wheelmark.verify.facts import Examiner
from wheelmark.verify.imagefacts import ImageFacts
from wheelmark.verify.policy import Kind, Policy, load_policy, permissions
from wheelmark.verify.verdict import Accepted, Report, Verdict, printable, refusal

MODULE = "wheelmark.deploy.hook"
_STATE_LIMITS = strictjson.Limits(size=4 << 20, depth=8, items=10_000, string=1 << 20)
_UID_MAP = Path("/proc/self/uid_map")
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_TOLERANCE = dt.timedelta(seconds=60)
"""A machine may start within a second what another one signed in it, and their clocks differ by what NTP leaves."""
_SHOWN = 1000
"""Characters of a line in syslog."""
SECONDS, GRACE = 15, 5
"""For an answer, and for saying that there was none: together less than the engine gives the hook and its start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
    """What the runtime says of a container."""

    id: str
    bundle: Path
    annotations: Mapping[str, Any]


def read_state(data: bytes) -> Container:
    """The container that the runtime is about to start.

    Args:
        data: The state, JSON.

    Raises:
        InputError: It is none (``hook-state``, or a code of ``strictjson``).
    """
    value = strictjson.load_object(data, what="the container's state", limits=_STATE_LIMITS)
    found, bundle = value.get("id"), value.get("bundle")
    if not isinstance(found, str) or not isinstance(bundle, str) or not found or not bundle.startswith("/"):
        raise InputError("the runtime names no container or no bundle", reason="hook-state")
    annotations = value.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise InputError("the container's annotations are no object", reason="hook-state")
    return Container(id=found, bundle=Path(bundle), annotations=annotations)


def decide(state: bytes, config: HookConfig, *, now: Now) -> Report:
    """May this container start? The answer is written down before it is given.

    Args:
        state: As the runtime gave it.
        config: The operator's word.
        now: The clock, with a zone, or what tells it: many containers may start at the same time.

    Returns:
        The report. Whatever fails on the way is a refusal in it.
    """
    question = _Question(config=config, now=now)
    try:
        report = question.answer(state)
        question.remember(report)
    except WheelmarkError as error:
        report = question.refused(error.reason, error.what)
    except INTERRUPTS:
        raise
    except BaseException as error:  # noqa: BLE001 - row 44: a panic of a library is a refusal too
        report = question.refused("library", f"{type(error).__name__}: {str(error)[:300]}")
    try:
        AuditLog(config.log).append(report, now=question.time())  # 5
    except ConfigError as error:
        verdict = refusal(question.subject, error.reason, error.what)
        return dataclasses.replace(report, verdicts=(*report.verdicts, verdict))
    return report


@dataclasses.dataclass(kw_only=True)
class _Question:
    """One start of one container, as far as it is known."""

    config: HookConfig
    now: Now
    subject: str = "a container"
    memory: Memory | None = None

    def time(self) -> dt.datetime:
        """The one time of the whole decision: of when it is first asked for."""
        self.now = time_of(self.now)
        return self.now

    def answer(self, state: bytes) -> Report:
        container = read_state(state)
        self.subject = f"container {container.id[:12]}"
        check_output(container.annotations)
        image = image_of_container(container.id, container.bundle, storage=self.config.storage)  # 2
        self.subject = f"{self.subject} of {image.label}"
        if (allowed := _allowed(image, self.config, self.subject, self.time)) is not None:  # 3
            return Report(path=self.subject, policy="", verdicts=(allowed,))
        store = EvidenceStore(self.config.store)
        kept = _evidence(image, store)
        policy = load_policy(self.config.policy, strict=True)  # 4
        self.memory = memory = store.memory()
        examiner = Examiner(policy.roots, policy.keys, cache=store.cache())
        # One configuration may have been pulled under several manifests: what any of them is accepted by, the image is.
        circumstances = dataclasses.replace(
            memory.circumstances(self.time, self.config.channel), tolerance=_TOLERANCE
        )
        reports = [self._judge(image, evidence, policy, examiner, circumstances) for evidence in kept]
        return next((report for report in reports if report.accepted), reports[0])

    def remember(self, report: Report) -> None:
        """Learn from the answer; nothing from one that the operator's own list gave."""
        if self.memory is not None:
            self.memory.remember(report, now=self.time())

    def _judge(
        self,
        image: EngineImage,
        evidence: ImageEvidence,
        policy: Policy,
        examiner: Examiner,
        circumstances: Circumstances,
    ) -> Report:
        facts = image_facts(evidence, path=self.subject)
        sources = [
            alone.Source(name=f"sha256:{sha256}", read=lambda data=data: data, meant=True)  # type: ignore[misc]
            for sha256, data in evidence.bundles.items()
        ]
        judged = alone.judge_alone(
            facts,
            Kind.IMAGE,
            alone.examine_sources(sources, examiner),
            policy,
            examiner=examiner,
            circumstances=circumstances,
        )
        more = _host_refusals(self.subject, facts, image, policy, self.config)
        return Report(
            path=self.subject,
            policy=policy.source,
            verdicts=(*more, *judged.verdicts),
            steps=judged.steps,
            policy_sha256=policy.sha256,
        )

    def refused(self, reason: str, text: str) -> Report:
        verdict = refusal(self.subject, reason, text)
        return Report(path=self.subject, policy=str(self.config.policy), verdicts=(verdict,))


def _allowed(
    image: EngineImage, config: HookConfig, subject: str, clock: Callable[[], dt.datetime]
) -> Accepted | None:
    for sha256 in image.manifests:
        if (why := config.allow.get(sha256)) is not None:
            return Accepted(
                subject=subject,
                sha256=sha256,
                level=why,
                root="allow list of the hook",
                signer="operator",
                identity="",
                issuer="",
                time=clock(),
                predicates=(),
            )
    return None


def _evidence(image: EngineImage, store: EvidenceStore) -> list[ImageEvidence]:
    """What is kept of the image, for each manifest under which it was pulled; at least one."""
    kept = [found for sha256 in image.manifests if (found := store.find(sha256)) is not None]
    if any(found.manifest != image.manifests[found.sha256] or found.config != image.config for found in kept):
        raise RejectedError(f"{image.label} is not what was verified", reason="hook-storage")
    if kept:
        return kept
    known = ", ".join(f"sha256:{item}" for item in image.manifests)
    raise RejectedError(
        f"{image.label} was not verified on this machine: {known} is not in {store.directory}",
        cause="it was pulled or built by other means than wheelmark pull, or its evidence was forgotten",
        fix="wheelmark pull it",
        reason="hook-unknown-image",
    )


def image_facts(evidence: ImageEvidence, *, path: str) -> ImageFacts:
    """What an image's bytes say, from its documents; its layers were read when it was pulled, and had no problem.

    Raises:
        InputError: A document is malformed.
        RejectedError: What is kept contradicts itself (``store-changed``).
    """
    manifest = types.read_manifest(evidence.manifest)
    config = types.read_config(evidence.config)
    held, waiting = {evidence.sha256}, dict(evidence.indexes)
    while holding := [sha256 for sha256, data in waiting.items() if _lists(data, held)]:
        held |= set(holding)
        for sha256 in holding:
            del waiting[sha256]
    if waiting or manifest.config.sha256 != digests.sha256(evidence.config):
        raise RejectedError(f"what is kept of {path} contradicts itself", reason="store-changed")
    return ImageFacts(
        path=path,
        name="",
        sha256=evidence.sha256,
        size=len(evidence.manifest),
        linked_from=tuple(evidence.indexes),
        platform=config.platform,
        labels=config.labels,
        files={item.digest: item.sha256 for item in (manifest.config, *manifest.layers)},
        config_sha256=manifest.config.sha256,
        version=config.labels.get("org.opencontainers.image.version", ""),
    )


def _lists(index: bytes, sha256: AbstractSet[str]) -> bool:
    return any(item.sha256 in sha256 for item in types.read_index(index).manifests)


def _host_refusals(
    subject: str, facts: ImageFacts, image: EngineImage, policy: Policy, config: HookConfig
) -> Iterator[Verdict]:
    """What this machine refuses beside the policy's requirement."""
    if config.targets and facts.target not in config.targets:
        text = f"it is for {facts.target or 'no target'}; this machine takes {', '.join(config.targets)}"
        yield refusal(subject, "image-target", text, sha256=facts.sha256)
    # The engine may know the same image by further digests: one of these may be the one that is denied.
    others = set(image.recorded) - {facts.sha256, *facts.linked_from}
    for item in policy.denials:
        if item.sha256 in others:
            yield refusal(subject, "denied", f"sha256:{item.sha256}: {item.why}", sha256=facts.sha256)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the hook: state on stdin, exit code 0 only where the container may start."""
    parser = argparse.ArgumentParser(
        prog=MODULE, description="OCI createRuntime hook; started by a container runtime."
    )
    parser.add_argument("--config", type=Path, default=SYSTEM, help="the hook's configuration")
    parser.add_argument(
        "--rootless",
        action="store_true",
        help="installed for a rootless engine, whose hooks run in a user namespace",
    )
    parser.add_argument(
        FLAG, action="store_true", help=f"started by the launcher, which takes {ACCEPTED} alone for a yes"
    )
    args = parser.parse_args(arguments)
    try:
        with _namespace(rootless=args.rootless):
            config = load_hook_config(args.config)  # 1
            report = decide(_read_stdin(), config, now=machine_clock)
            signal.alarm(0)  # it was answered
            for verdict in report.verdicts:
                if not isinstance(verdict, Accepted):
                    _tell(f"{verdict.subject}: {verdict.reason}: {verdict.text}")
            return ACCEPTED if args.launched and report.accepted else int(report.exit_code)
    except WheelmarkError as error:
        _tell(f"a container: {error.reason}: {error.what}")
        return int(error.exit_code)
    except BaseException as error:  # noqa: BLE001 - row 44, as in decide; an interrupted hook has not allowed anything
        _tell(f"a container: library: {type(error).__name__}: {str(error)[:300]}")
        return 1


def _read_stdin() -> bytes:
    if sys.stdin is None:  # it was closed
        return b""
    return sys.stdin.buffer.read(_STATE_LIMITS.size + 1)


def limit_time(seconds: int = SECONDS, grace: int = GRACE) -> None:
    """Refuse after some seconds, and end by all means some seconds later: with SIGALRM, which nothing can catch then."""

    def expired(_number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(grace)
        raise RejectedError(f"there was no answer within {seconds} s", reason="hook-timeout")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)


@contextlib.contextmanager
def _namespace(*, rootless: bool) -> Iterator[None]:
    """In the user namespace of a rootless engine, take root's files, which show as the overflow user's, as root's."""
    if not rootless:
        yield
        return
    outside = int(_UID_MAP.read_text(encoding="ascii").split()[1])
    if os.geteuid() != 0 or outside == 0:
        raise ConfigError(
            "the hook was installed for a rootless engine, and this is none",
            fix="wheelmark hook install without --rootless",
            reason="hook-config",
        )
    with permissions.also_owned_by(int(_OVERFLOW.read_text(encoding="ascii"))):
        yield


def _tell(line: str) -> None:  # 6
    shown = printable(f"wheelmark: refused {line}")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(shown, file=sys.stderr, flush=True)  # noqa: T201 - the runtime's way to say why
    with contextlib.suppress(OSError):
        syslog.openlog("wheelmark-hook", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_ERR, shown[:_SHOWN])


if __name__ == "__main__":
    limit_time()
    sys.exit(main())
