from __future__ import annotations

import importlib
import pkgutil

import wheelmark
from wheelmark import errors


def _classes() -> list[type[errors.WheelmarkError]]:
    found: list[type[errors.WheelmarkError]] = []
    stack = [errors.WheelmarkError]
    while stack:
        cls = stack.pop()
        found += cls.__subclasses__()
        stack += cls.__subclasses__()
    return found


def test_every_direct_class_has_an_exit_code_and_reason_of_its_own() -> None:
    direct = errors.WheelmarkError.__subclasses__()
    assert len(direct) > 8
    assert len({cls.exit_code for cls in direct}) == len(direct)
    assert len({cls.reason for cls in direct}) == len(direct)
    assert errors.Exit.OK not in {cls.exit_code for cls in _classes()}


def test_exit_codes_are_unique() -> None:
    assert len({int(code) for code in errors.Exit}) == len(list(errors.Exit))


def test_message_has_what_cause_and_next_step() -> None:
    error = errors.LockError(
        "torch is not locked", cause="edited by hand", fix="wheelmark lock", reason="lock-open"
    )
    assert str(error).splitlines() == [
        "torch is not locked",
        "  likely cause: edited by hand",
        "  next step:    wheelmark lock",
    ]
    assert error.as_json()["reason"] == "lock-open"
    assert error.as_json()["exit_code"] == 8


def test_command_error_shows_command_code_and_indented_output() -> None:
    error = errors.CommandError(["g++", "-c", "x.cpp"], 1, "x.cpp:1: error: no\n")
    assert str(error) == "g++ -c x.cpp failed (exit 1)\n    x.cpp:1: error: no"
    assert "signal 9" in str(errors.CommandError(["g++"], -9, ""))


def test_every_module_states_what_it_is() -> None:
    silent = []
    for module in pkgutil.walk_packages(wheelmark.__path__, "wheelmark."):
        if module.name.endswith("__main__") or ".worker" in module.name:
            continue
        loaded = importlib.import_module(module.name)
        if not (loaded.__doc__ or "").strip():
            silent.append(module.name)
    assert silent == []
