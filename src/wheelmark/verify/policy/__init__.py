"""A verification policy: whom to trust and what to ask for. The operator's word alone.

It is never read from what is being verified, nor from ``wheelmark.toml``. Reference: ``docs/reference/policy.md``.
"""

from __future__ import annotations

from wheelmark.verify.policy.loading import load_policy, read_policy
from wheelmark.verify.policy.model import (
    ANY,
    IMAGE_GATES,
    SCHEMA_VERSION,
    VERSION,
    Denial,
    Document,
    Example,
    Kind,
    Policy,
    Predicate,
    Requirement,
    RootRule,
    Severity,
    Signer,
)

__all__ = [
    "ANY",
    "IMAGE_GATES",
    "SCHEMA_VERSION",
    "VERSION",
    "Denial",
    "Document",
    "Example",
    "Kind",
    "Policy",
    "Predicate",
    "Requirement",
    "RootRule",
    "Severity",
    "Signer",
    "load_policy",
    "read_policy",
]
