"""``python -m flask_instruct PARENT …`` is ``flask …`` that ends with PARENT: a child of ``flask instruct dev``.

Otherwise the children of a killed parent would hold the port, and work on runs, without anybody seeing it.
"""

from __future__ import annotations

import os
import sys

from flask.cli import main

from .runs.worker import die_with_parent

if __name__ == "__main__":
    parent = int(sys.argv.pop(1))
    die_with_parent()
    # It may have ended while this process was still importing.
    if os.getppid() == parent:
        main()
