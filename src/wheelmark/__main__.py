"""``python -m wheelmark``."""

import sys

from wheelmark.cli import main

sys.exit(main())
