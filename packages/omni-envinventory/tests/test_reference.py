"""The reference page."""
# ruff: noqa: E501

from __future__ import annotations

from omni_envinventory import Inventory, Lifecycle, Variable, load_inventory, render
from omni_envinventory.check.page import documented_names
from omni_envinventory.reference import differences


def test_the_page_documents_public_names_and_no_others() -> None:
    inventory = load_inventory("vllm-omni")
    page = render(inventory)
    documented = {name for name, _ in documented_names(page)}
    assert documented == {v.name for v in inventory if v.category == "public"}
    assert all(v.name in page for v in inventory)


def test_rows() -> None:
    inventory = Inventory(
        "app",
        (
            Variable("A", "public", type="a | b", default="a", read="at start", precedence="CLI wins", invalid="error", summary="What\nit does."),
            Variable("B", "public", lifecycle=Lifecycle.DEPRECATED, replacement="A", since="1.0", until="2.0", topic="Other"),
            Variable("C", "public", lifecycle=Lifecycle.REMOVED, replacement="A"),
        ),
    )  # fmt: skip
    page = render(inventory)
    assert "| `A`<br>What it does. | a \\| b; default: a | at start | CLI wins; invalid: error | stable |" in page
    assert "deprecated since 1.0 until 2.0; use `A`" in page
    assert "## Removed" in page
    assert page.endswith("\n")
    assert not page.endswith("\n\n")


def test_differences() -> None:
    inventory = load_inventory("vllm-omni")
    assert differences(inventory, render(inventory)) == ""
    assert "+| `DIFFUSION_CACHE_BACKEND`" in differences(
        inventory, render(inventory).replace("| `DIFFUSION_CACHE_BACKEND`", "| `X`")
    )
