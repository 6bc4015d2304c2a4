"""Who could have written a file: what install and hooks ask of a policy, its roots and its keys (row 38).

The path is walked from ``/``, one component at a time, each opened relative to the one before and looked at
through its descriptor; what is read afterwards is the descriptor at the end. Nothing can be exchanged between the
look and the reading. Every directory, every symbolic link on the way and the file have to belong to root or to
the user who runs this, and no directory or file may be writable by others.

A sticky directory (``/tmp``) may be writable: others cannot rename or remove what is not theirs in it. They could
give a file of ours another name there, so an entry in one may have no second link.

In the user namespace of a rootless container engine root's files belong to the overflow user (user_namespaces(7)), and so
do those of everybody else who is not mapped. A hook that runs in one says so with ``also_owned_by``; who could write
was looked at from outside, when it was installed.

Where a POSIX access control list lets somebody else write, the mode's group bits show its mask (acl(5)), and the
file is refused. Other systems of rights (NFSv4 lists, shares that map users) are not seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from wheelmark.errors import ConfigError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS = 40
"""Symbolic links on the way, as Linux allows (path_resolution(7))."""
_REASON = "policy-permissions"
_ALSO: ContextVar[frozenset[int]] = ContextVar("_ALSO", default=frozenset())


@contextmanager
def also_owned_by(uid: int) -> Iterator[None]:
    """Take files and directories of one more user as root's, for as long as this lasts.

    Args:
        uid: The overflow user of the user namespace that this runs in.
    """
    token = _ALSO.set(frozenset({uid}))
    try:
        yield
    finally:
        _ALSO.reset(token)


def check_ownership(path: Path) -> None:
    """Refuse a file that somebody else than root or this user could have written or put there.

    Args:
        path: A file; relative to the working directory.

    Raises:
        ConfigError: ``policy-permissions``, with the path, its mode and what mends it; ``policy-absent`` where
            there is no such file.
    """
    with _walked(path):
        pass


def check_folder(path: Path) -> None:
    """Refuse a directory that somebody else than root or this user could have put there, or could put another in place of.

    Args:
        path: A directory; relative to the working directory. A sticky one (``/tmp``) may be writable by others.

    Raises:
        ConfigError: As ``check_ownership``.
    """
    with _walked(path, folder=True):
        pass


def check_entry(path: Path, status: os.stat_result) -> None:
    """Refuse one entry of a directory that was looked at: its owner and mode, and nothing on the way to it.

    Args:
        path: As the error names it.
        status: Its own, links not followed.

    Raises:
        ConfigError: ``policy-permissions``.
    """
    if status.st_uid not in {0, os.geteuid(), *_ALSO.get()} or status.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"{path} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}: others could write it",
            cause="whoever can write code that decides, decides",
            fix=f"chown {os.geteuid()} {path}; chmod go-w {path}",
            reason=_REASON,
        )


def read_owned(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of a file that ``check_ownership`` accepts; of that very file, whatever happens to the path.

    Raises:
        ConfigError: As ``check_ownership``.
    """
    with _walked(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read(limit)


@contextmanager
def _walked(path: Path, *, folder: bool = False) -> Iterator[int]:
    """A descriptor of the file, open for reading."""
    walk = _Walk(path, folder=folder)
    try:
        yield walk.descriptor
    finally:
        os.close(walk.descriptor)


class _Walk:
    """The way from ``/`` to a file; ``descriptor`` is where it stands, the file in the end."""

    def __init__(self, path: Path, *, folder: bool) -> None:
        self._path = path
        self._folder = folder
        self._at = "/"
        self._links = 0
        self._sticky = False
        self.descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
        try:
            self._follow()
        except OSError as error:
            os.close(self.descriptor)
            raise ConfigError(f"cannot read {path}: {error.strerror}", reason="policy-absent") from error
        except BaseException:
            os.close(self.descriptor)
            raise

    def _follow(self) -> None:
        self._check(os.fstat(self.descriptor))
        waiting = _parts(os.path.join(os.getcwd(), self._path))  # noqa: PTH109, PTH118 - Path would drop dots
        while waiting:
            name = waiting.pop()
            self._at = os.path.join(self._at, name)  # noqa: PTH118
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                self._links += 1
                if self._links > _MAX_LINKS:
                    raise self._refuse("is a link in a circle of links", fix="name the file itself")
                self._check(status)
                target = os.readlink(name, dir_fd=self.descriptor)
                self._at = os.path.dirname(self._at)  # noqa: PTH120
                if target.startswith("/"):
                    self._step("/", os.O_PATH | os.O_DIRECTORY)
                    self._at = "/"
                waiting += _parts(target)
            elif waiting:
                self._step(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
            else:
                # Without O_NONBLOCK, opening a named pipe would wait for ever.
                self._step(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        mode = os.fstat(self.descriptor).st_mode
        if self._folder and not stat.S_ISDIR(mode):
            raise self._refuse("is no directory", fix="name a directory")
        if not self._folder and not stat.S_ISREG(mode):
            raise self._refuse("is no plain file", fix="name a file")

    def _step(self, name: str, flags: int) -> None:
        """Open what comes next, and look at what was opened rather than at its name."""
        opened = os.open(name, flags | os.O_CLOEXEC, dir_fd=self.descriptor)
        os.close(self.descriptor)
        self.descriptor = opened
        self._check(os.fstat(opened))

    def _check(self, status: os.stat_result) -> None:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        if status.st_uid not in {0, os.geteuid(), *_ALSO.get()}:
            raise self._refuse(
                f"belongs to user {status.st_uid} (mode {mode}), and this is user {os.geteuid()}",
                fix=f"chown {os.geteuid()} {self._at}, or keep the policy where only root or you can write",
            )
        if stat.S_ISLNK(status.st_mode):
            # It has no mode of its own: whoever can replace it can write the directory that it is in.
            if self._sticky:
                self._check_names(status, mode)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        if self._sticky and not is_folder:
            self._check_names(status, mode)
        self._sticky = is_folder and bool(status.st_mode & stat.S_ISVTX)
        if status.st_mode & _OTHERS_WRITE and not self._sticky:
            raise self._refuse(f"can be written by others (mode {mode})", fix=f"chmod go-w {self._at}")

    def _check_names(self, status: os.stat_result, mode: str) -> None:
        if status.st_nlink > 1:
            raise self._refuse(
                f"has {status.st_nlink} names (mode {mode}), and one is in a directory that others can write",
                fix=f"copy it to a directory of your own: cp {self._at} ~/",
            )

    def _refuse(self, text: str, *, fix: str) -> ConfigError:
        about = "" if self._at == os.path.abspath(self._path) else f", on the way to {self._path}"  # noqa: PTH100
        return ConfigError(
            f"{self._at} {text}{about}",
            cause="whoever can write a policy, its roots or its keys decides what is installed",
            fix=fix,
            reason=_REASON,
        )


def _parts(path: str) -> list[str]:
    """Components of a path, the last one first; a name with a slash after it has to be a directory."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return parts[::-1]
