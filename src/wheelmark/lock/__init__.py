"""Hash-locked inputs: lock files are resolved, read and checked, and environments are made from nothing else."""

from __future__ import annotations

from wheelmark.lock.environment import Environment, locked_environment
from wheelmark.lock.plan import runtime_lock
from wheelmark.lock.resolve import LockResult, LockState, lock_files
from wheelmark.packages.pins import Pin, parse_pins, read_pins

__all__ = [
    "Environment",
    "LockResult",
    "LockState",
    "Pin",
    "lock_files",
    "locked_environment",
    "parse_pins",
    "read_pins",
    "runtime_lock",
]
