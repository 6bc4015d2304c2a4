"""Which compiled modules are not what their source compiles to. A script, run by the interpreter that would load them.

``[[source, compiled, optimization], …]`` as JSON on stdin; on stdout the indices of those that differ. An interpreter runs
``__pycache__/name.cpython-311.pyc`` in place of ``name.py`` as soon as the size and time in its header fit: a compiled
file that says something else is as good as a changed source. Compared is everything of a code object but the name of
its file, constants and nested functions included.
"""

from __future__ import annotations

import json
import marshal
import sys
from pathlib import Path
from types import CodeType
from typing import Any

_HEADER = 16
"""Bytes before the code: magic number, flags, time or hash, size (PEP 552)."""
_PARTS = (
    "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_name", "co_qualname", "co_argcount",
    "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_flags", "co_firstlineno", "co_linetable",
    "co_exceptiontable",
)  # fmt: skip


def _key(value: Any) -> Any:
    """What two constants have to have in common to be one; 1, 1.0 and True are three, 0.0 and -0.0 two."""
    if isinstance(value, CodeType):
        return [getattr(value, name, None) for name in _PARTS], [_key(item) for item in value.co_consts]
    if isinstance(value, tuple):
        return [_key(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(repr(_key(item)) for item in value)
    return type(value).__name__, repr(value)


def differs(source: str, compiled: str, optimization: int) -> bool:
    """Whether a compiled file holds other code than its source."""
    data = Path(compiled).read_bytes()
    found = marshal.loads(data[_HEADER:])  # noqa: S302 - makes values and runs none; a crash ends this process alone
    due = compile(Path(source).read_bytes(), source, "exec", dont_inherit=True, optimize=optimization)
    return not isinstance(found, CodeType) or _key(found) != _key(due)


def main() -> None:
    """Answer one question."""
    wrong = []
    for index, (source, compiled, optimization) in enumerate(json.load(sys.stdin)):
        try:
            if differs(source, compiled, optimization):
                wrong.append(index)
        except (OSError, EOFError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            wrong.append(index)
    json.dump(wrong, sys.stdout)


if __name__ == "__main__":
    main()
