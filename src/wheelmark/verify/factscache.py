"""Facts kept from one process to the next. Never a verdict: policy and clock are looked at anew each time.

An entry is found by everything that facts depend on: the bundle's bytes, the artifact of a message signature, the
roots and keys, and this verifier's version. The folder is private (``trust.state``): who can write there can say
what was verified. An entry that is torn, of another verifier, or no facts at all is as good as none: the bundle is
verified again, and the entry replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import wheelmark
from wheelmark import digests, strictjson
from wheelmark.errors import InputError
from wheelmark.trust import state
from wheelmark.verify.facts import Facts

_LIMITS = strictjson.Limits(size=24 << 20, depth=8, items=1000, string=22 << 20)


class FactsCache:
    """A folder of facts.

    Args:
        directory: Made with mode 0700 where absent.

    Raises:
        ConfigError: Others have access to it, or it cannot be used (``state-permissions``, ``state-directory``).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = state.private_directory(directory)

    @property
    def directory(self) -> Path:
        """The folder; what artifacts' bytes said is kept in it too (``artifactcache``)."""
        return self._directory

    def recall(self, *, trust: str, bundle: str, artifact: str) -> Facts | None:
        """The facts of a bundle, if they were established before.

        Args:
            trust: Digest of the roots and keys (of an ``Examiner``).
            bundle: sha256 of the bundle.
            artifact: sha256 of the artifact of a message signature; empty for a statement.
        """
        path = self._path(trust, bundle, artifact)
        try:
            with path.open("rb") as stream:
                data = stream.read(_LIMITS.size + 1)
            head, _, body = data.partition(b"\n")
            if head.decode() != digests.sha256(body):
                return None  # torn
            facts = Facts.from_json(strictjson.load_object(body, what="cached facts", limits=_LIMITS))
        except (OSError, UnicodeDecodeError, InputError):
            return None
        return (
            facts if (facts.bundle_sha256, facts.artifact_sha256 or artifact) == (bundle, artifact) else None
        )

    def keep(self, facts: Facts, *, trust: str, artifact: str) -> None:
        """Keep facts for later; where that is impossible (a full disk), they are established again then."""
        body = json.dumps(facts.as_json()).encode()
        if len(body) + 100 > _LIMITS.size:
            return
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._directory, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(digests.sha256(body).encode() + b"\n" + body)
                os.replace(name, self._path(trust, facts.bundle_sha256, artifact))  # noqa: PTH105 - atomic
            except OSError:
                os.unlink(name)  # noqa: PTH108 - of mkstemp
                raise

    def _path(self, trust: str, bundle: str, artifact: str) -> Path:
        asked = [wheelmark.__version__, trust, bundle, artifact]
        return self._directory / f"{digests.sha256(digests.canonical_json(asked))}.facts"
