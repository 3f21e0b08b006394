"""The tree of errors: narrow, with codes that differ, each also the built-in a caller would catch."""

from __future__ import annotations

import inspect

import pytest

from omni_hwr import errors
from omni_hwr.errors import WeightStoreError

CLASSES = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, WeightStoreError) and item is not WeightStoreError
]
BUILTINS = (ValueError, LookupError, TypeError, TimeoutError, OSError, RuntimeError)


@pytest.mark.parametrize("error", CLASSES, ids=lambda item: item.__name__)
def test_each_is_a_builtin_with_a_code_of_its_own(error: type[WeightStoreError]) -> None:
    assert issubclass(error, BUILTINS)
    assert [item.code for item in CLASSES].count(error.code) == 1
    assert error.__doc__


def test_a_long_list_of_problems_is_shortened() -> None:
    error = errors.BindingError([f"p{number}" for number in range(9)])
    assert str(error).endswith("p4; and 4 more")
    assert len(error.problems) == 9
