"""One wheel, verified with the bundles found for it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from pathlib import Path

from wheelmark.verify import alone
from wheelmark.verify.artifact import examine_wheel
from wheelmark.verify.artifactcache import ArtifactCache
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.verdict import Report


def verify_one_wheel(
    path: Path,
    policy: Policy,
    *,
    circumstances: Circumstances,
    bundles: Sequence[Path] = (),
    cache: FactsCache | None = None,
) -> Report:
    """Verify a wheel with the bundle beside it, those given, and those of the release that it lies in.

    Args:
        path: The wheel.
        policy: Whom to trust and what to ask for.
        circumstances: The clock, the channel, and what this machine has seen.
        bundles: Further bundles; each has to be about this wheel.
        cache: Facts of bundles from earlier runs.

    Raises:
        InputError: The wheel cannot be read.
        ConfigError: The policy has no requirement for wheels of this target.
    """
    examine = ArtifactCache(cache.directory).examine if cache is not None else examine_wheel
    examiner = Examiner(policy.roots, policy.keys, cache=cache)
    # Summing the wheel lets other threads run: its bundles take their time meanwhile.
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        looking = pool.submit(examine, path, subject=path.name)
        sources = [
            *alone.files([*alone.beside(path), *bundles], meant=True),
            *alone.files(alone.around(path.absolute().parent.parent), meant=False),
        ]
        examined = alone.examine_sources(sources, examiner)
        wheel = looking.result()
    judged = alone.judge_alone(
        wheel, Kind.WHEEL, examined, policy, examiner=examiner, circumstances=circumstances
    )
    return Report(path=str(path), policy=policy.source, verdicts=judged.verdicts, steps=judged.steps)
