"""Images on their way out: bundles attached to them, whole images with their evidence pushed and copied.

Nothing here signs; digests are kept as they are.
"""

from wheelmark.publish.attach import attach
from wheelmark.publish.copying import Copied, copy
from wheelmark.publish.publishing import Connection, Published, publish
from wheelmark.publish.transfer import Carried, Row

__all__ = ["Carried", "Connection", "Copied", "Published", "Row", "attach", "copy", "publish"]
