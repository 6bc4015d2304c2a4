"""Shell patterns over paths: what a recipe leaves out, and what of that it keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wheelmark.errors import ConfigError

_TOKEN = re.compile(r"/\*\*$|\*\*|\*|\?|\[!?[^\]/]+\]|[^*?\[/]+|/")


class Patterns:
    """Whether a path is left out.

    ``*`` and ``?`` stop at a ``/``, ``**`` does not; a pattern that ends in ``/**`` means the folder too.

    Args:
        drop: Patterns of what is left out.
        keep: Patterns of what stays all the same.

    Raises:
        ConfigError: A pattern cannot be read (``recipe-pattern``).
    """

    def __init__(self, drop: Sequence[str], keep: Sequence[str] = ()) -> None:
        self._drop = [_compiled(pattern) for pattern in drop]
        self._keep = [_compiled(pattern) for pattern in keep]

    def match(self, path: str) -> bool:
        """Whether a path is left out."""
        dropped = any(pattern.fullmatch(path) for pattern in self._drop)
        return dropped and not any(pattern.fullmatch(path) for pattern in self._keep)


def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern or pattern.startswith("/") or "".join(_TOKEN.findall(pattern)) != pattern:
        raise ConfigError(
            f"{pattern!r} is no pattern over paths",
            cause="patterns are shell patterns without a first /",
            reason="recipe-pattern",
        )
    return re.compile("".join(_translated(token) for token in _TOKEN.findall(pattern)), re.DOTALL)


def _translated(token: str) -> str:
    match token:
        case "/**":
            return "(/.*)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if token.startswith("["):
            negated = token[1] == "!"
            return f"[{'^/' if negated else ''}{re.escape(token[2 if negated else 1 : -1]).replace(chr(92) + '-', '-')}]"
        case _:
            return re.escape(token)
