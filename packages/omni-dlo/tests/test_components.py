"""The components policy refuses by name, before anything moves."""

from __future__ import annotations

from typing import Any

import pytest

from omni_dlo.components import Role, decide_roles, role_of
from omni_dlo.errors import ComponentPolicyError, ComponentPolicyTypeError

ROLES: dict[str, Role] = {"transformer": "streamed", "text_encoder": "encoder", "vae": "on_demand"}


@pytest.mark.parametrize(
    ("components", "error", "key"),
    [
        ([], ComponentPolicyTypeError, None),
        (["x"], ComponentPolicyTypeError, None),
        (False, ComponentPolicyTypeError, None),
        (0, ComponentPolicyTypeError, None),
        ({1: False}, ComponentPolicyTypeError, 1),
        ({"x": 0}, ComponentPolicyTypeError, "x"),
        ({"vae": None}, ComponentPolicyTypeError, "vae"),
        ({"transformer": False}, ComponentPolicyError, "transformer"),
        ({"transformer": True}, ComponentPolicyError, "transformer"),
        ({"text_encoder_9": False}, ComponentPolicyError, "text_encoder_9"),
    ],
)
def test_refusals_name_the_key(components: Any, error: type[Exception], key: object) -> None:
    with pytest.raises(error) as caught:
        decide_roles(ROLES, components)
    assert isinstance(caught.value, TypeError | ValueError)
    assert caught.value.key == key  # type: ignore[attr-defined]
    if key is not None:
        assert repr(key) in str(caught.value)


@pytest.mark.parametrize("components", [None, {}, {"default": True}])
def test_nothing_said_is_the_default(components: Any) -> None:
    assert [item.role for item in decide_roles(ROLES, components)] == ["streamed", "encoder", "on_demand"]


def test_false_keeps_whole_and_the_default_speaks_for_the_rest() -> None:
    decided = {item.name: item.role for item in decide_roles(ROLES, {"default": False, "vae": True})}
    assert decided == {"transformer": "streamed", "text_encoder": "whole", "vae": "on_demand"}


@pytest.mark.parametrize(
    ("name", "stacks", "role"),
    [
        ("transformer", True, "streamed"),
        ("transformer_2", True, "streamed"),
        ("text_encoder", True, "encoder"),
        ("image_encoder", False, "on_demand"),
        ("vae", True, "on_demand"),
        ("audio_vae", True, "on_demand"),
        ("safety_checker", False, "on_demand"),
    ],
)
def test_roles_by_name_and_stacks(name: str, stacks: bool, role: str) -> None:
    assert role_of(name, stacks, ()) == role


def test_a_plan_overrides() -> None:
    assert role_of("transformer_2", True, ("transformer_2",)) == "on_demand"
