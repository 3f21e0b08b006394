"""The components policy of a pipeline: what a user may say, and what each component then does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from omni_dlo.errors import ComponentPolicyError, ComponentPolicyTypeError

__all__ = ["ComponentRole", "Role", "decide_roles", "role_of"]

Role = Literal["streamed", "encoder", "on_demand", "whole"]


@dataclass(frozen=True)
class ComponentRole:
    """What one component does, and why."""

    name: str
    role: Role
    why: str


def role_of(name: str, has_stacks: bool, on_demand: Sequence[str]) -> Role:
    """The role that a component of this name has by default.

    Components with stacks of blocks stream; encoders do too but never keep a block; all else, autoencoders above all,
    is loaded before use.
    """
    if name in on_demand:
        return "on_demand"
    encoder = "encoder" in name
    autoencoder = not encoder and (name.startswith(("vae", "vqvae", "vq", "autoencoder")) or name.endswith("vae"))
    if not has_stacks or autoencoder:
        return "on_demand"
    return "encoder" if encoder else "streamed"


def decide_roles(roles: Mapping[str, Role], components: object) -> tuple[ComponentRole, ...]:
    """Apply a user's ``components`` to the default ``roles``. Nothing has moved when this refuses.

    Raises:
        ComponentPolicyTypeError: Not a mapping, a key that is no text, a value that is no boolean.
        ComponentPolicyError: An unknown name, or the name of a streamed transformer.
    """
    if components is None:
        components = {}
    if not isinstance(components, Mapping):
        raise ComponentPolicyTypeError(None, f"must be a mapping of names to booleans, not {type(components).__name__}")
    for key, value in components.items():
        if not isinstance(key, str):
            raise ComponentPolicyTypeError(key, "a key is a component's name as text, or 'default'")
        if not isinstance(value, bool):
            raise ComponentPolicyTypeError(key, f"the value must be True or False, not {value!r}")
        if key == "default":
            continue
        if key not in roles:
            known = ", ".join(sorted(name for name, role in roles.items() if role != "streamed")) or "none"
            raise ComponentPolicyError(key, f"no such component; those that can be named: {known}")
        if roles[key] == "streamed":
            raise ComponentPolicyError(key, "is the streamed model itself; use resident_blocks to keep more of it")
    default = components.get("default", True)
    decided = []
    for name, role in roles.items():
        if role == "streamed":
            decided.append(ComponentRole(name, role, "its blocks stream"))
        elif components.get(name, default):
            why = "its blocks stream, none stays" if role == "encoder" else "loaded before use, leaves after it"
            decided.append(ComponentRole(name, role, why))
        else:
            decided.append(ComponentRole(name, "whole", "kept on the device whole, as components says"))
    return tuple(decided)
