"""Deployment, the operator's side: what this machine is, which wheel of a release fits it, and installing that.

What is installed are the bytes that were verified, and what then lies on disk is compared with them. Nothing here
reaches what builds.
"""

from __future__ import annotations

from wheelmark.deploy.audit import Audit, audit_environment
from wheelmark.deploy.choose import Choice, Offer, choose
from wheelmark.deploy.install import Outcome, Request, install
from wheelmark.deploy.interpreter import Interpreter, read_interpreter
from wheelmark.deploy.machine import Card, Machine, Places, detect

__all__ = [
    "Audit",
    "Card",
    "Choice",
    "Interpreter",
    "Machine",
    "Offer",
    "Outcome",
    "Places",
    "Request",
    "audit_environment",
    "choose",
    "detect",
    "install",
    "read_interpreter",
]
