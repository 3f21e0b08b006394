"""At run time: warn of set variables that look like a typo of an owned name, and check what a stage may carry."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .check.findings import Finding, Rule
from .loading import load_inventory
from .model import Inventory, Lifecycle
from .near import Origin, did_you_mean, origin


class EnvironmentTypoWarning(UserWarning):
    """Set variables that nobody reads and that look like a typo of one somebody does."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A set variable under an owned prefix, or close to an owned name, that the inventory does not know.

    Attributes:
        name: The variable. Its value is not kept.
        origin: Typo, unknown, Kubernetes service link or image build.
        meant: The owned name it is likely meant to be.
    """

    name: str
    origin: Origin
    meant: str | None


def _inventory(inventory: Inventory | str | Path) -> Inventory:
    return inventory if isinstance(inventory, Inventory) else load_inventory(inventory)


def unknown_variables(
    prefixes: Iterable[str],
    *,
    inventory: Inventory | str | Path = "vllm-omni",
    environ: Mapping[str, str] | None = None,
) -> tuple[Stranger, ...]:
    """Set variables that the inventory does not know and that belong to the prefixes, or nearly do.

    Args:
        prefixes: Owned prefixes.
        inventory: The inventory, its path, or the name of a built-in one.
        environ: The environment; this process's by default.

    Raises:
        InventoryNotFoundError: There is no such inventory.
        InventoryError: It says something it must not.
    """
    known = _inventory(inventory)
    wanted = tuple(prefixes)
    owned = [v.name for v in known.everything() if v.name.startswith(wanted) or v.category == "public"]
    found: list[Stranger] = []
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if known.find(name) is not None:
            variable = known.find(name)
            if variable is not None and origin(name, value, ())[0] is Origin.SERVICE_LINK and name.startswith(wanted):
                found.append(Stranger(name, Origin.SERVICE_LINK, None))
            continue
        if name.startswith(wanted):
            found.append(Stranger(name, *origin(name, value, owned)))
        elif any(_near_prefix(name, prefix) for prefix in wanted):
            meant = did_you_mean(name, [o for o in owned if o.startswith(wanted)])
            if meant is not None:
                found.append(Stranger(name, Origin.TYPO, meant))
    return tuple(found)


def _near_prefix(name: str, prefix: str) -> bool:
    """Whether a name starts almost like an owned prefix: its first word is the prefix's with one slip."""
    head, word = name.upper()[: len(prefix) + 1], prefix.upper().rstrip("_")
    return (
        head.startswith(word)
        or sorted(head[: len(word)]) == sorted(word)
        or sum(a != b for a, b in zip(head, word)) <= 1
    )


def warn_unknown(
    prefixes: Iterable[str] = (),
    *,
    inventory: Inventory | str | Path = "vllm-omni",
    environ: Mapping[str, str] | None = None,
    stacklevel: int = 2,
) -> tuple[Stranger, ...]:
    """Warn once of set variables that look like a typo of an owned name.

    One ``EnvironmentTypoWarning`` names them all, by name and never by value; Python shows the same warning from the
    same place once. Names that Kubernetes service links or image builds put there are recognised, returned and not
    warned of.

    Args:
        prefixes: Owned prefixes; those of the inventory when empty.
        inventory: The inventory, its path, or the name of a built-in one.
        environ: The environment; this process's by default.
        stacklevel: As for ``warnings.warn``.

    Returns:
        Every set variable under the prefixes that the inventory does not know, with where it seems to come from.
    """
    known = _inventory(inventory)
    strangers = unknown_variables(tuple(prefixes) or known.prefixes(), inventory=known, environ=environ)
    typos = [stranger for stranger in strangers if stranger.origin is Origin.TYPO]
    if typos:
        listed = ", ".join(
            f"{t.name.encode('ascii', 'backslashreplace').decode()} (did you mean {t.meant}?)" for t in typos
        )
        warnings.warn(f"set but read by nobody: {listed}", EnvironmentTypoWarning, stacklevel=stacklevel)
    return strangers


def check_stage_env(
    inventory: Inventory, stages: Mapping[str, Iterable[str]], *, path: str = ""
) -> tuple[Finding, ...]:
    """What is wrong with the keys of stage ``env:`` tables; values are never looked at.

    Args:
        inventory: What may be set.
        stages: Keys per stage name.
        path: The file they are written in, for the findings.

    Returns:
        One finding for each key that is unknown, removed, or not allowed in its stage.
    """
    found: list[Finding] = []
    names = [variable.name for variable in inventory.everything()]
    for stage, keys in stages.items():
        for key in keys:
            variable = inventory.find(key)
            meant: str | None = None
            if variable is None:
                meant = did_you_mean(key, names)
                message = f"stage {stage}: {key} is not in the inventory"
            elif variable.lifecycle is Lifecycle.REMOVED:
                message, meant = f"stage {stage}: {key} was removed", variable.replacement
            elif variable.stages is not None and stage not in variable.stages:
                where = ", ".join(variable.stages) or "no stage"
                message = f"stage {stage}: {key} may be set for {where} only"
            else:
                continue
            found.append(Finding(Rule.STAGE_ENV, message, key, path, 0, meant))
    return tuple(found)
