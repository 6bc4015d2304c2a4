"""The spine: what ``nox -s build test sign`` does, one stage a module, in the order in which they run.

``build``  locked inputs -> kernels, native library, wheels, descriptions (``building``)
``test``   the very bytes in the release directory -> evidence (``gating``)
``sign``   evidence -> closed manifest, statements, bundles (``signing``)

Each stage starts from what lies in the release directory, checks it by digest, and can be run again: finished
work is skipped by rehashed inputs. One run holds the directory at a time.
"""

from wheelmark.pipeline.building import build, read_built
from wheelmark.pipeline.buildrecord import Built, BuiltWheel
from wheelmark.pipeline.gating import Gated, Tested, read_evidence, test
from wheelmark.pipeline.imagegating import GatedImage
from wheelmark.pipeline.imageplan import NOT_ASKED, PlannedImage
from wheelmark.pipeline.planning import Plan, PlannedTarget, make_plan, next_steps
from wheelmark.pipeline.progress import Progress
from wheelmark.pipeline.signing import Signed, sign
from wheelmark.pipeline.workspace import Workspace, open_workspace

__all__ = [
    "NOT_ASKED",
    "Built",
    "BuiltWheel",
    "Gated",
    "GatedImage",
    "Plan",
    "PlannedImage",
    "PlannedTarget",
    "Progress",
    "Signed",
    "Tested",
    "Workspace",
    "build",
    "make_plan",
    "next_steps",
    "open_workspace",
    "read_built",
    "read_evidence",
    "sign",
    "test",
]
