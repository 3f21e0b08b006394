"""The twelve cases that every scan must get right, each the smallest program of its kind."""

from __future__ import annotations

import pytest

from omni_envinventory import Operation, scan_source

CASES = {
    "aliases of the mapping and of a bound method": (
        'env = os.environ; get = os.environ.get\nenv["A"]; get("B")',
        {"A", "B"},
    ),
    "class constant": ('class C:\n    K = "B"\nos.getenv(C.K)', {"B"}),
    "wrapper of a wrapper": (
        'def raw(n): return os.environ.get(n)\ndef flag(k): return raw(k)\nflag(k="A")',
        {"A"},
    ),
    "loop over a literal tuple": ('for s in ("X", "Y"): os.getenv(f"OMNI_{s}")', {"OMNI_X", "OMNI_Y"}),
    "pattern": ('def f(i): return os.getenv(f"RANK_{i}")', {"RANK_*"}),
    "bytes and keyword": ('os.environb[b"A"]; os.getenv(key="B")', {"A", "B"}),
    "env= of a child": ('import subprocess\nsubprocess.run(c, env={**os.environ, "D": "1"})', {"D", "*"}),
    "constant of an unknown module": ("from pkg.names import V\nos.getenv(V)", {None}),
    "nested settings": (
        (
            "from pydantic import BaseModel\n"
            "from pydantic_settings import BaseSettings, SettingsConfigDict\n"
            "class Storage(BaseModel):\n    path: str = ''\n"
            "class Settings(BaseSettings):\n"
            "    model_config = SettingsConfigDict(env_prefix='OMNI_', env_nested_delimiter='__')\n"
            "    storage: Storage = Storage()\n"
        ),
        {"OMNI_STORAGE__PATH"},
    ),
    "conditional and expandvars": ('os.getenv("A" if x else "B"); os.path.expandvars("${C}")', {"A", "B", "C"}),
    "look-alikes": (
        (
            '"""os.environ["Z"]"""\ndef test(monkeypatch, job):\n    "os.getenv(1)"\n'
            '    monkeypatch.setenv("A", "1")\n    return job.environ["A"]'
        ),
        set(),
    ),
    "computed": ("import sys\nos.getenv(sys.argv[1])", {None}),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_names(case: str) -> None:
    source, expected = CASES[case]
    result = scan_source(f"import os\n{source}")
    assert {access.name for access in result.accesses} == expected
    assert not result.unparsed


def test_child_environment_is_a_write() -> None:
    result = scan_source('import os, subprocess\nsubprocess.run(c, env={**os.environ, "D": "1"})')
    operations = {access.name: access.operation for access in result.accesses}
    assert operations == {"D": Operation.WRITE, "*": Operation.BULK}
