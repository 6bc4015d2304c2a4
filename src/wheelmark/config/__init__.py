"""``wheelmark.toml``: what a project releases, for which targets, through which gates.

One model of frozen dataclasses (``model``), read strictly (``reader``); the JSON Schema and the reference
page are generated from it (``document``). A declaration says what to build and which gates to run. It never
says whom to trust: verification does not read it.
"""

from wheelmark.config.model import (
    AuditGate,
    CorrectnessGate,
    Declaration,
    Gates,
    HostArch,
    Kernels,
    Locks,
    Native,
    PerformanceGate,
    Project,
    TargetRow,
    TorchBuild,
)
from wheelmark.config.reader import FILE_NAME, find_declaration, load_declaration, parse_declaration

__all__ = [
    "FILE_NAME",
    "AuditGate",
    "CorrectnessGate",
    "Declaration",
    "Gates",
    "HostArch",
    "Kernels",
    "Locks",
    "Native",
    "PerformanceGate",
    "Project",
    "TargetRow",
    "TorchBuild",
    "find_declaration",
    "load_declaration",
    "parse_declaration",
]
