"""The release directory (``dist/``) while it is being made: its lock, atomic files, resume, and closing.

What a *finished* release holds is described by ``wheelmark.manifest``, which the verifier reads too.
"""

from wheelmark.release.close import check_accounted, close_release, entry_for
from wheelmark.release.directory import ReleaseDirectory
from wheelmark.release.steps import Step, StepRecord, Steps

__all__ = ["ReleaseDirectory", "Step", "StepRecord", "Steps", "check_accounted", "close_release", "entry_for"]
