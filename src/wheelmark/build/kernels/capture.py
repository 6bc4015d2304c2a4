"""Write a kernel declaration by watching a project launch its kernels.

Meant to be run once by who declares kernels, and its output to be read and kept; a build never captures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.build.kernels.compile import scratch_folder
from wheelmark.build.kernels.declaration import NAME
from wheelmark.build.kernels.scheduler import SILENCE, triton_target
from wheelmark.build.kernels.toolchain import read_compiler
from wheelmark.build.kernels.worker_process import Gone, WorkerProcess
from wheelmark.errors import BuildError
from wheelmark.targets import Target

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = "# Captured from {call}. The form: docs/reference/kernel-declarations.md.\nschema = 1\n\n[project]\npath = {path}\n"


def capture_declaration(
    call: str, source_root: Path, target: Target, *, python: Path, path: Sequence[str] = (".",)
) -> str:
    """The declaration of every kernel that a function of the project launches.

    Args:
        call: ``module:function``; it is called without arguments and is expected to run the project's wrappers on
            CPU tensors. Device queries are answered for ``target``, and nothing is launched.
        source_root: The project's source folder; the declaration is to be kept in it.
        target: The target whose device is imitated.
        python: The build environment's interpreter.
        path: Folders for ``sys.path``, relative to ``source_root``.

    Returns:
        TOML: a kernel for each JIT function, a variant for each distinct launch.

    Raises:
        BuildError: The function failed, launched nothing, or launched what cannot be declared
            (``kernel-capture``).
    """
    compiler = read_compiler(python)
    job = {
        "job": "capture",
        "target": triton_target(target),
        "folders": [str((source_root / folder).resolve()) for folder in path],
        "call": call,
    }
    launches: list[Mapping[str, Any]] = []
    with scratch_folder(compiler) as scratch, WorkerProcess(compiler, scratch, [], SILENCE) as worker:
        try:
            worker.say(job)
            while (event := worker.hear())["event"] != "exited":
                if event["event"] == "refused":
                    raise _failed(call, event["text"])
                launches += event.get("launches", [])
        except Gone as gone:
            raise _failed(call, str(gone)) from gone
        if event["signal"] or event["code"]:
            raise _failed(call, f"its process ended with {event}\n{worker.output()}")
    if not launches:
        raise _failed(call, "it launched no kernel")
    return _HEAD.format(call=call, path=_toml(list(path))) + "".join(_kernels(launches))


def _kernels(launches: Sequence[Mapping[str, Any]]) -> list[str]:
    kernels: dict[tuple[str, str], dict[bytes, Mapping[str, Any]]] = {}
    for launch in launches:
        group = kernels.setdefault((launch["module"], launch["attribute"]), {})
        group.setdefault(digests.canonical_json(launch), launch)
    names: set[str] = set()
    written: list[str] = []
    for (module, attribute), group in kernels.items():
        name = attribute if attribute not in names else f"{module}.{attribute}"
        if NAME.fullmatch(name) is None:
            raise _failed(f"{module}:{attribute}", f"{name!r} is no name of a kernel")
        names.add(name)
        written.append(_kernel(name, module, attribute, list(group.values())))
    return written


def _kernel(name: str, module: str, attribute: str, launches: Sequence[Mapping[str, Any]]) -> str:
    lines = ["", "[[kernel]]"]
    lines += [f"{key} = {_toml(value)}" for key, value in (("name", name), ("module", module))]
    lines += [f"attribute = {_toml(attribute)}", 'import = "shimmed"']
    for number, launch in enumerate(launches, start=1):
        lines += ["", "[[kernel.matrix.launch]]", f'label = "{number}"']
        lines += [
            f"{part} = {_toml(launch[part])}"
            for part in ("arguments", "constants", "options")
            if launch[part]
        ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """One line of TOML for what JSON can say, besides null."""
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{key if _BARE.fullmatch(key) else json.dumps(key)} = {_toml(item)}"
            for key, item in value.items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        # Braces are placeholders in a declaration; JSON's escapes are TOML's.
        return json.dumps(value.replace("{", "{{").replace("}", "}}"))
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):  # noqa: PLR0124 - NaN
        return repr(value)
    return json.dumps(value)


def _failed(call: str, text: str) -> BuildError:
    return BuildError(
        f"no declaration could be captured from {call}: {text}",
        cause="the function has to run the project's wrappers on CPU tensors",
        reason="kernel-capture",
    )
