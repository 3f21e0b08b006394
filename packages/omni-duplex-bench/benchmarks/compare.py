"""The promises of this package's Speed section in one run: ``python benchmarks/compare.py [--json] [--quick]``.

The only peer is a bare websockets loop, which stands in scale.py beside every point. Other load generators that speak
this protocol at the pace of real time are not known to us.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.argv[0] = str(Path(__file__).with_name("scale.py"))
    runpy.run_path(sys.argv[0], run_name="__main__")
