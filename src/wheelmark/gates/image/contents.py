"""Contents: what lies in the image, read back from its layers, and what its labels say of it.

What should not be in it is looked for by ``wheelmark.build.image.contents`` (shell, package manager, setuid, byte code,
libraries that are needed and not there, dangling links, the user). Here it is held against what it was made from: the
labels, the Debian packages of the lock, the wheels that its SBOM names.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark.attest.sbom import read_sbom
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.build.image import ImageContents, inspect
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.gates.image.context import ImageContext
from wheelmark.lock.debian import read_debian_lock
from wheelmark.oci import types

NAME = "image-contents"
_NEEDED = "contents-needed"
_ADDING = 2
"""Dependencies and payload: neither changes the operating system, nor the second the first."""
_PYTHON = frozenset({"dependency", "wheel"})


def run(context: ImageContext) -> Evidence:
    """Look into the image (reasons: ``contents-…``).

    Raises:
        LockError: The Debian lock is malformed.
    """
    try:
        found = inspect(context.layout, f"sha256:{context.sha256}", adding=_ADDING)
        problems, lacking = [], []
        for item in found.findings:
            text = f"{item.path}: {item.text}" if item.path else item.text
            # A stand-in without torch lacks torch's libraries, and says so in its label.
            if item.reason == _NEEDED and context.stand_in and context.recipe.dependencies.stand_in_without:
                lacking.append(text)
            else:
                problems.append(Problem(reason=item.reason, text=text))
        problems += [*_labels(context, found), *_packages(context, found), *_distributions(context, found)]
    except InputError as error:
        return context.refused(NAME, error)
    said = f"{found.files:,} files, {found.objects:,} ELF objects, {len(found.packages)} Debian packages"
    if lacking:
        said += f"; a stand-in, {len(lacking)} libraries are not there"
    return context.judged(
        NAME,
        problems,
        summary=said,
        details={
            "files": found.files,
            "bytes": found.size,
            "objects": found.objects,
            "user": found.user,
            "entrypoint": list(found.entrypoint),
            "writable": list(found.writable),
            "preloaded": sorted({library for _object, library in found.preloaded}),
            "lacking": lacking,
            "packages": [f"{item.name} {item.version}" for item in found.packages],
            "distributions": [f"{item.name} {item.version}" for item in found.distributions],
        },
    )


def _labels(context: ImageContext, found: ImageContents) -> Iterator[Problem]:
    expected = {
        types.TARGET_LABEL: str(context.row.target),
        types.RELEASABLE_LABEL: "false" if context.stand_in else "true",
        types.REASON_LABEL: context.stand_in,
    }
    for name, text in expected.items():
        if (said := found.labels.get(name, "")) != text:
            yield Problem(reason="contents-labels", text=f"label {name} is {said!r:.100}, not {text!r:.100}")
    number = str(context.recipe.image.user)
    if found.user.partition(":")[0] != number:
        yield Problem(reason="contents-user", text=f"it runs as {found.user!r}; the recipe says {number}")


def _packages(context: ImageContext, found: ImageContents) -> Iterator[Problem]:
    """The notes that scanners read, against the lock."""
    if context.debian_lock is None:
        return
    locked = {(item.name, item.version) for item in read_debian_lock(context.debian_lock).packages}
    noted = {(item.name, item.version) for item in found.packages}
    for name, version in sorted(locked ^ noted):
        where = "in the lock, and not in the image" if (name, version) in locked else "not in the lock"
        yield Problem(reason="contents-packages", text=f"{name} {version} is {where}")


def _distributions(context: ImageContext, found: ImageContents) -> Iterator[Problem]:
    """What is laid out, against what the SBOM says was."""
    said = {
        (canonicalize_name(item.name), _version(item.version))
        for item in read_sbom(context.sbom.read_bytes()).components
        if item.role in _PYTHON
    }
    site = context.recipe.python.site.lstrip("/")
    laid = {
        (canonicalize_name(item.name), _version(item.version))
        for item in found.distributions
        if item.path.rpartition("/")[0]
        == site  # others are copies inside a distribution, and its own business
    }
    for name, version in sorted(said ^ laid):
        where = "in the SBOM, and not in the image" if (name, version) in said else "not in the SBOM"
        yield Problem(reason="contents-distributions", text=f"{name} {version} is {where}")


def _version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        return text
