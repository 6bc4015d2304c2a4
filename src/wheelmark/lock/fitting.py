"""Whether the locks of a project are those of its declaration: asked before anything is built from them.

A lock that was resolved for other requirements installs exactly what it says, and what it says is not what was declared.
What is compared is the digest of the inputs that each lock carries; a lock without one was made by other means, and is taken
as it is. No network.
"""

from __future__ import annotations

from wheelmark.config import Declaration
from wheelmark.errors import LockError
from wheelmark.lock.debian import debian_plans, fitting_lock
from wheelmark.lock.plan import FOLDER, payload_plans
from wheelmark.lock.resolve import LockState, check_lock
from wheelmark.packages.pins import header_field


def check_fitting(declaration: Declaration, *, images: bool = True) -> None:
    """Refuse locks that do not fit the declaration.

    Args:
        declaration: The project.
        images: Whether packages of images count too.

    Raises:
        LockError: One does not (``lock-stale``), or a Debian lock cannot be read (``debian-lock``).
        ConfigError: A recipe cannot be read.
    """
    found: list[str] = []
    for plan in payload_plans(declaration):
        path = declaration.root / FOLDER / plan.name
        if path.is_file() and header_field(path, "inputs"):
            result = check_lock(plan, path)
            found += [f"{result.name}: {result.why}"] if result.state is LockState.STALE else []
    for debian in debian_plans(declaration) if images else ():
        if debian.path.is_file():
            try:
                fitting_lock(debian.path, debian.debian, debian.architecture)
            except LockError as error:
                if error.reason != "lock-stale":
                    raise
                found.append(error.what)
    if found:
        raise LockError(
            f"stale: {'; '.join(found)}",
            cause="wheelmark.toml or a recipe was changed after the locks were written",
            fix="nox -s lock",
            reason="lock-stale",
        )
