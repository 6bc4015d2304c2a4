"""Images on their way out: bundles attached to them, whole images with their evidence pushed and copied.

Nothing here signs or judges; digests are kept as they are.
"""

from wheelmark.publish.attach import attach

__all__ = ["attach"]
