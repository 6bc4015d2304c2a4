"""Annotations that turn a hook's output into a file of the container's choice: crun's, refused.

crun opens the files that ``run.oci.hooks.stdout`` and ``run.oci.hooks.stderr`` name, as itself, before it starts a hook
(crun(1), "EXTENSIONS"): whoever writes a container's annotations would say where on the machine the hook's words go, and that
nobody reads them. The file is opened all the same; what keeps it from mattering is that nothing starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from wheelmark.errors import RejectedError

PREFIX = "run.oci.hooks."


def check_output(annotations: Iterable[str]) -> None:
    """Refuse a container that redirects the output of hooks.

    Args:
        annotations: Their names, of the container's state or of its ``config.json``.

    Raises:
        RejectedError: One is such a one (``hook-output``).
    """
    for name in annotations:
        if name.startswith(PREFIX):
            raise RejectedError(
                f"the container's annotation {name[:100]!r} would lead what hooks say into a file",
                cause="somebody wants the reason of a refusal not to be seen, or a file of this machine to be written",
                fix="start it without the annotation",
                reason="hook-output",
            )
