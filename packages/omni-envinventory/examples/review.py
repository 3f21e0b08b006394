"""Review a small project: scan it, hold it against an inventory, and write its reference page.

Run it in any folder; it works in a temporary one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from omni_envinventory import check, load_inventory, render, scan

SOURCE = """
import os

PREFIX = "SHOP_"


def setting(name, default=""):
    return os.environ.get(PREFIX + name, default)


def start():
    for part in ("HOST", "PORT"):
        print(part, setting(part))
    os.environ.pop("SHOP_HOTS", None)
"""

INVENTORY = """
[inventory]
name = "shop"
sources = ["shop.py"]
owned_prefixes = ["SHOP_"]

[[variable]]
name = "SHOP_HOST"
category = "public"
default = "localhost"
summary = "Where the shop listens."

[[variable]]
name = "SHOP_PORT"
category = "public"
type = "integer"
default = "8080"
"""


def main() -> None:
    """Scan, check and document."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "shop.py").write_text(SOURCE)
        (root / "envinventory.toml").write_text(INVENTORY)
        print("Found:")
        for access in scan([root], base=root).accesses:
            print(f"  {access.name} {access.operation} at {access.place}")
        inventory = load_inventory(root / "envinventory.toml")
        print("To put right:")
        for finding in check(inventory, root).findings:
            print(f"  {finding.where}: {finding.text}")
        print(render(inventory))


if __name__ == "__main__":
    main()
