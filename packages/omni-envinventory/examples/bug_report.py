"""The environment section of a bug report, with secrets that must not be in it."""

from __future__ import annotations

from omni_envinventory import Inventory, Variable, collect, this_process

INVENTORY = Inventory(
    "shop",
    (
        Variable("SHOP_HOST", "public", default="localhost"),
        Variable("SHOP_INDEX", "public"),
        Variable("SHOP_NOTE", "public"),
    ),
)


def main() -> None:
    """Report on a made-up environment."""
    environment = this_process(
        {
            "SHOP_HOST": "0.0.0.0",
            "SHOP_INDEX": "https://user:tr0ub4dor@packages.example/simple",
            "SHOP_NOTE": "the password is tr0ub4dor",
            "DB_PASSWORD": "tr0ub4dor",
            "SHOP_PORT": "tcp://10.0.0.1:80",
            "EDITOR": "vi",
        }
    )
    text = collect(INVENTORY, environment=environment, provenance={"SHOP_HOST": "cli"}).to_text()
    assert "tr0ub4dor" not in text
    print(text)


if __name__ == "__main__":
    main()
