"""Locked packages, brought into a pool: one file a package, ``<sha256>.deb``, whose bytes are the locked ones.

Places are tried in this order: the pool itself, the folder in ``WHEELMARK_DEBIAN_POOL``, the mirrors of this machine's
apt, a dated snapshot. Nothing is believed but the sha256. What is there stays there: a run that was stopped is
finished by the next one.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import enum
import errno
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import requests
import urllib3

from wheelmark import digests
from wheelmark.errors import LockError
from wheelmark.lock.debian.document import DebianLock, DebianPackage
from wheelmark.lock.debian.machine import SNAPSHOT_VARIABLE, Machine, shown, this_machine

POOL_VARIABLE = "WHEELMARK_DEBIAN_POOL"
"""A folder of ``<sha256>.deb``: what a release's CI kept, for versions that left the mirrors."""
_WORKERS = 3
_CHUNK = 1 << 16
_SLOWEST = 32 << 10
"""Bytes a second below which a mirror is given up."""
_LONGEST_PAUSE = 30.0
_ABANDONED = 3600
"""Seconds after which a file that a killed run left behind is removed."""
_OK, _TOO_MANY, _SERVER_ERROR = 200, 429, 500
_GONE = {404, 410}
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a mirror is waited for."""

    connect: float = 10
    """Seconds to a connection."""
    read: float = 30
    """Seconds without a byte."""
    tries: int = 3
    pause: float = 1
    """Seconds before the second try; twice as long before each further one."""


class _Outcome(enum.Enum):
    """Why a place did not give the package."""

    ABSENT = "absent"
    """It says that it has no such file."""
    DIFFERENT = "different"
    """It gave other bytes."""
    FAILED = "failed"
    """It could not be asked, or broke off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Refusal:
    place: str
    outcome: _Outcome
    why: str


class _RefusedError(Exception):
    """A place did not give the package; never leaves this module."""

    def __init__(self, outcome: _Outcome, why: str, *, again: float | None = None) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.why = why
        self.again = again
        """Seconds after which it may be asked again; ``None``: not at all."""


def fetch_packages(
    lock: DebianLock,
    *,
    pool: Path,
    machine: Machine | None = None,
    folder: Path | None = None,
    patience: Patience = Patience(),
    progress: Callable[[str], None] = lambda _line: None,
) -> Mapping[str, Path]:
    """Bring every package of a lock into a pool.

    Args:
        lock: The lock.
        pool: Folder of ``<sha256>.deb``, made where it is absent. What lies in it is hashed again.
        machine: Where packages come from; default: as this machine's apt is configured, asked only if it is needed.
        folder: Another folder of the same form; default: what ``WHEELMARK_DEBIAN_POOL`` names.
        patience: How long a mirror is waited for.
        progress: Called with a line for people at each package that is fetched.

    Returns:
        sha256 -> file, for each package.

    Raises:
        LockError: Versions that left the mirrors (``debian-stale``, all of them named), a place with other bytes
            (``debian-digest``), a mirror that does not answer (``debian-fetch``), no place to ask (``debian-source``), a
            full disk (``disk-full``), a pool that cannot be written (``debian-pool``).
    """
    named = os.environ.get(POOL_VARIABLE, "")
    further = folder or (Path(named) if named else None)
    with _writing(pool):
        pool.mkdir(parents=True, exist_ok=True)
        _sweep(pool)
        absent = [package for package in lock.packages if not _is_there(pool / file_name(package), package)]
    if absent:
        known = machine or this_machine()
        fetcher = _Fetcher(pool=pool, folder=further, machine=known, patience=patience, progress=progress)
        refused = fetcher.fetch_all(absent)
        if refused:
            raise _explain(refused, known, further)
    return {package.sha256: pool / file_name(package) for package in lock.packages}


def file_name(package: DebianPackage) -> str:
    """A package's name in a pool."""
    return f"{package.sha256}.deb"


def _is_there(path: Path, package: DebianPackage) -> bool:
    """Whether the pool holds the package; a damaged file is removed."""
    try:
        whole = path.stat().st_size == package.size
    except FileNotFoundError:
        return False
    if whole and digests.sha256_file(path) == package.sha256:
        return True
    path.unlink()
    return False


def _sweep(pool: Path) -> None:
    """Remove what killed runs left; a run that goes on is younger."""
    for path in pool.glob(".*.partial"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()


@contextmanager
def _writing(pool: Path) -> Iterator[None]:
    """Errors of the pool's own file system."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise LockError(
            f"cannot write Debian packages into {pool}: {error.strerror}",
            cause="the disk or the quota is full" if full else "",
            fix="make room and run it again: what was fetched is kept"
            if full
            else "name a folder you may write to",
            reason="disk-full" if full else "debian-pool",
        ) from error


class _Fetcher:
    """One run over the packages that the pool lacks."""

    def __init__(
        self,
        *,
        pool: Path,
        folder: Path | None,
        machine: Machine,
        patience: Patience,
        progress: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._folder = folder
        self._machine = machine
        self._patience = patience
        self._progress = progress
        self._stop = threading.Event()
        self._local = threading.local()

    def fetch_all(self, packages: Sequence[DebianPackage]) -> Mapping[DebianPackage, tuple[_Refusal, ...]]:
        """Fetch them; gives those that no place had, with what each place said."""
        refused: dict[DebianPackage, tuple[_Refusal, ...]] = {}
        done = 0
        with concurrent.futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="debian") as workers:
            running = {workers.submit(self._fetch, package): package for package in packages}
            try:
                for future in concurrent.futures.as_completed(running):
                    package = running[future]
                    place, refusals = future.result()
                    done += 1
                    if place:
                        self._progress(
                            f"[{done}/{len(packages)}] {package.name} {package.version}"
                            f" ({package.size:,} bytes, {place})"
                        )
                    else:
                        refused[package] = refusals
            except BaseException:
                self._stop.set()
                workers.shutdown(wait=True, cancel_futures=True)
                raise
        return {package: refused[package] for package in packages if package in refused}

    def _fetch(self, package: DebianPackage) -> tuple[str, tuple[_Refusal, ...]]:
        """The kind of place that gave it, or every place's refusal."""
        refusals = []
        for kind, place, give in self._places(package):
            try:
                self._from(package, give)
            except _RefusedError as error:
                refusals.append(_Refusal(place=place, outcome=error.outcome, why=error.why))
            else:
                return kind, ()
        return "", tuple(refusals)

    def _places(
        self, package: DebianPackage
    ) -> Iterator[tuple[str, str, Callable[[DebianPackage], Iterable[bytes]]]]:
        """Kind, name and reader of each place, in order."""
        if self._folder is not None:
            path = self._folder / file_name(package)
            yield "folder", str(self._folder), lambda _package: _file(path)
        for source in self._machine.sources_of(package.suite):
            url = f"{source.uri}/{quote(package.path, safe='/+~:%-._')}"
            scheme = urlsplit(url).scheme
            kind = "snapshot" if source.dated else "mirror"
            if scheme in {"http", "https"}:
                yield kind, shown(url), lambda item, url=url: self._http(url, item)  # type: ignore[misc]
            elif scheme in {"file", "copy"}:
                path = Path(unquote(urlsplit(source.uri).path)) / package.path
                yield kind, shown(url), lambda _package, path=path: _file(path)  # type: ignore[misc]

    def _from(self, package: DebianPackage, give: Callable[[DebianPackage], Iterable[bytes]]) -> None:
        """Take a package from one place, again after a failure that may pass.

        Raises:
            _RefusedError: The place does not give it.
        """
        pause = self._patience.pause
        for left in reversed(range(self._patience.tries)):
            try:
                self._keep(package, give(package))
            except _RefusedError as error:
                if not left or error.again is None:
                    raise
                if self._stop.wait(min(max(error.again, pause), _LONGEST_PAUSE)):
                    raise
                pause *= 2
            else:
                return

    def _keep(self, package: DebianPackage, chunks: Iterable[bytes]) -> None:
        """Write what a place gives under its own name, once it is whole and the locked bytes.

        Raises:
            _RefusedError: More, fewer or other bytes.
            LockError: The pool cannot be written.
        """
        with _writing(self._pool):
            handle, name = tempfile.mkstemp(
                prefix=f".{package.sha256[:16]}-", suffix=".partial", dir=self._pool
            )
        partial = Path(name)
        try:
            digest, size = hashlib.sha256(), 0
            with os.fdopen(handle, "wb", buffering=0) as stream:
                for chunk in chunks:
                    size += len(chunk)
                    if size > package.size:
                        raise _RefusedError(
                            _Outcome.DIFFERENT, f"it gives more than the locked {package.size:,} bytes"
                        )
                    digest.update(chunk)
                    with _writing(self._pool):
                        _write(stream.fileno(), chunk)
            if size < package.size:
                raise _RefusedError(
                    _Outcome.FAILED, f"it breaks off after {size:,} of {package.size:,} bytes", again=0
                )
            if digest.hexdigest() != package.sha256:
                raise _RefusedError(_Outcome.DIFFERENT, f"its sha256 is {digest.hexdigest()}")
            with _writing(self._pool):
                partial.chmod(0o644)
                partial.replace(self._pool / file_name(package))
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def _http(self, url: str, package: DebianPackage) -> Iterator[bytes]:
        """The body of an answer, within the time that its size allows.

        Raises:
            _RefusedError: No such file, no answer, or not the answer of an archive.
        """
        patience = self._patience
        deadline = time.monotonic() + 2 * patience.read + package.size / _SLOWEST
        try:
            with self._session().get(
                url,
                stream=True,
                timeout=(patience.connect, patience.read),
                headers={"Accept-Encoding": "identity"},
            ) as answer:
                _check_status(answer)
                # Not ``iter_content``: it waits for whole chunks, however slowly their bytes come.
                while chunk := answer.raw.read1(_CHUNK):
                    if self._stop.is_set() or time.monotonic() > deadline:
                        raise _RefusedError(_Outcome.FAILED, "it answers too slowly")
                    yield chunk
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _RefusedError(_Outcome.FAILED, _words(error), again=0) from error

    def _session(self) -> requests.Session:
        """This worker's connections; apt's proxies go before those of the environment."""
        session = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.headers["User-Agent"] = "wheelmark"
            session.proxies.update(self._machine.proxies())
            self._local.session = session
        return session


def _check_status(answer: requests.Response) -> None:
    status = answer.status_code
    if status in _GONE:
        raise _RefusedError(_Outcome.ABSENT, f"HTTP {status}")
    if status != _OK:
        busy = status == _TOO_MANY or status >= _SERVER_ERROR
        after = answer.headers.get("Retry-After", "")
        again = (float(after) if after.isdecimal() else 0.0) if busy else None
        raise _RefusedError(_Outcome.FAILED, f"HTTP {status}", again=again)


def _words(error: Exception) -> str:
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError | urllib3.exceptions.ProtocolError):
        return "no connection, or it was cut"
    return type(error).__name__


def _file(path: Path) -> Iterator[bytes]:
    """A file's bytes.

    Raises:
        _RefusedError: It is absent, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(digests.CHUNK):
                yield chunk
    except FileNotFoundError as error:
        raise _RefusedError(_Outcome.ABSENT, "no such file") from error
    except OSError as error:
        raise _RefusedError(_Outcome.FAILED, error.strerror or type(error).__name__) from error


def _write(handle: int, data: bytes) -> None:
    """All of it: a write to a disk that fills up may take a part first."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _explain(
    refused: Mapping[DebianPackage, tuple[_Refusal, ...]], machine: Machine, folder: Path | None
) -> LockError:
    """The error for what no place gave; other bytes weigh most, then a mirror that may still have the file."""
    different = _with(refused, _Outcome.DIFFERENT)
    if different:
        return LockError(
            f"not the locked bytes: {_listed(different)}",
            cause="a mirror or folder is damaged, or somebody changed the file: the sha256 is the lock's, which Debian signed",
            fix=f"name another mirror in /etc/apt, or a folder that has it in {POOL_VARIABLE}",
            reason="debian-digest",
        )
    unasked = {
        package: refusals
        for package, refusals in refused.items()
        if not machine.sources_of(package.suite) and all(item.outcome is _Outcome.ABSENT for item in refusals)
    }
    if unasked:
        suites = sorted({package.suite for package in unasked})
        return LockError(
            f"no apt source of this machine has {', '.join(suites)}, and {len(unasked)} locked packages are not here",
            cause="/etc/apt names no mirror with it" + (f", and {folder} lacks them" if folder else ""),
            fix=f"add a mirror there, set {SNAPSHOT_VARIABLE} to the base URL of an archive or dated snapshot,"
            f" or {POOL_VARIABLE} to a folder that `wheelmark lock --fetch` filled",
            reason="debian-source",
        )
    failed = _with(refused, _Outcome.FAILED)
    unread = {package: refusals for package, refusals in refused.items() if not refusals}
    if failed or unread:
        return LockError(
            f"cannot fetch {len(refused)} of the locked Debian packages: {_listed(failed or unread)}",
            cause="the mirror cannot be reached, or breaks off"
            if failed
            else "apt's sources are of a kind that only apt reads",
            fix="run it again: what was fetched is kept",
            reason="debian-fetch",
        )
    names = ", ".join(f"{package.name} {package.version}" for package in refused)
    return LockError(
        f"stale lock: {len(refused)} locked Debian packages are no longer on the mirror: {names}",
        cause="a mirror keeps only the newest version of a package; these were replaced since the lock was written",
        fix=f"nox -s lock takes the newer ones; to build what is locked, set {POOL_VARIABLE} to a folder that still has them"
        f" (CI keeps one), or {SNAPSHOT_VARIABLE} to a snapshot of the lock's date",
        reason="debian-stale",
    )


def _with(
    refused: Mapping[DebianPackage, tuple[_Refusal, ...]], outcome: _Outcome
) -> dict[DebianPackage, tuple[_Refusal, ...]]:
    found = {
        package: tuple(item for item in refusals if item.outcome is outcome)
        for package, refusals in refused.items()
    }
    return {package: refusals for package, refusals in found.items() if refusals}


def _listed(refused: Mapping[DebianPackage, tuple[_Refusal, ...]]) -> str:
    items = [
        f"{package.name} {package.version} ({'; '.join(f'{item.place}: {item.why}' for item in refusals)})"
        for package, refusals in refused.items()
    ]
    return "; ".join(items[:5]) + (f"; and {len(items) - 5} more" if len(items) > 5 else "")  # noqa: PLR2004
