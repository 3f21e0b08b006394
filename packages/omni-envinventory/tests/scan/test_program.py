"""Whole programs: names, wrappers and aliases that cross files, broken files, the cache, and what is never imported."""
# ruff: noqa: E501

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omni_envinventory import ScanResult, SourceNotFoundError, scan

Scan = Callable[[dict[str, str]], ScanResult]


def names(result: ScanResult) -> set[str | None]:
    return {access.name for access in result.accesses}


def test_constant_of_another_module(scan_files: Scan) -> None:
    result = scan_files(
        {
            "pkg/__init__.py": "",
            "pkg/names.py": 'V = "A"\nW = V + "_TAIL"',
            "pkg/use.py": "import os\nfrom pkg.names import V\nfrom . import names\nos.getenv(V)\nos.getenv(names.W)",
        }
    )
    assert names(result) == {"A", "A_TAIL"}


def test_wrapper_through_files_and_levels(scan_files: Scan) -> None:
    result = scan_files(
        {
            "pkg/__init__.py": "from .low import raw as read_raw",
            "pkg/low.py": "import os\ndef raw(n, d=None): return os.environ.get(n, d)",
            "pkg/mid.py": "from pkg import read_raw\ndef flag(k): return read_raw('APP_' + k)",
            "pkg/high.py": "from . import mid\nDEBUG = mid.flag('DEBUG')",
        }
    )
    assert names(result) == {"APP_DEBUG"}
    (access,) = result.accesses
    assert (access.place.path, access.via and access.via.path) == ("pkg/high.py", "pkg/low.py")


def test_alias_exported_from_another_module(scan_files: Scan) -> None:
    result = scan_files(
        {"compat.py": "import os\nenviron_ = os.environ", "use.py": "from compat import environ_\nenviron_['A']"}
    )
    assert names(result) == {"A"}


def test_instance_shared_between_files(scan_files: Scan) -> None:
    reader = (
        "import os\nclass Reader:\n    def __init__(self, prefix):\n        self.prefix = prefix\n"
        "    def text(self, key):\n        return os.environ.get(self.prefix + key)\n"
    )
    result = scan_files(
        {
            "reader.py": reader,
            "state.py": "from reader import Reader\nSETTINGS = Reader('OMNI_')",
            "use.py": "import state\nfrom state import SETTINGS\nSETTINGS.text('A')\nstate.SETTINGS.text('B')",
        }
    )
    assert names(result) == {"OMNI_A", "OMNI_B"}


def test_name_built_by_a_function_of_another_file(scan_files: Scan) -> None:
    result = scan_files(
        {
            "build.py": "def name(x):\n    return 'P_' + x",
            "use.py": "import os\nimport build\nos.getenv(build.name('A'))",
        }
    )
    assert names(result) == {"P_A"}


def test_unknown_module_is_dynamic_and_says_which(scan_files: Scan) -> None:
    result = scan_files({"use.py": "import os\nfrom elsewhere.names import V\nos.getenv(V)"})
    (access,) = result.accesses
    assert access.dynamic
    assert "elsewhere.names.V" in access.detail


def test_import_cycle_ends(scan_files: Scan) -> None:
    result = scan_files({"a.py": "import os\nfrom b import Y\nX = 'A'\nos.getenv(Y)", "b.py": "from a import X\nY = X"})
    assert names(result) == {"A"}


def test_settings_with_aliases_and_inheritance(scan_files: Scan) -> None:
    result = scan_files(
        {
            "models.py": "from pydantic import BaseModel\nclass Disk(BaseModel):\n    path: str\n    size: int = 1\n",
            "settings.py": (
                "from typing import ClassVar\nfrom pydantic import AliasChoices, Field\n"
                "from pydantic_settings import BaseSettings, SettingsConfigDict\nfrom models import Disk\n"
                "class Base(BaseSettings):\n    model_config = SettingsConfigDict(env_prefix='APP_', env_nested_delimiter='__')\n"
                "    debug: bool = False\n"
                "class Main(Base):\n    disk: Disk | None = None\n    KIND: ClassVar[str] = 'x'\n    _private: int = 1\n"
                "    token: str = Field('', alias='API_TOKEN')\n"
                "    host: str = Field('', validation_alias=AliasChoices('HOST_A', 'HOST_B'))\n"
            ),
        }
    )
    assert names(result) == {"APP_DEBUG", "APP_DISK__PATH", "APP_DISK__SIZE", "API_TOKEN", "HOST_A", "HOST_B"}
    assert {access.form for access in result.accesses} == {"settings"}


def test_a_file_that_is_not_python(scan_files: Scan) -> None:
    result = scan_files({"old.py": "import os\nprint os.environ['A']", "odd.py": "print 'x'", "nul.py": "os.environ\0"})
    assert {unparsed.path for unparsed in result.unparsed} == {"old.py", "nul.py"}
    assert {access.form for access in result.dynamic} == {"unparsed"}


def test_encodings(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nimport os\nos.getenv('\xc4')".encode("latin-1"))
    assert scan([tmp_path], base=tmp_path).names == ("\xc4",)


def test_each_file_is_read_once(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"m{number}.py").write_text(
            f"import os\nfrom m{(number + 1) % 5} import f\ndef f(k): return os.getenv(k)\nf('A')"
        )
    program = (
        "import sys, pathlib\nfrom omni_envinventory import scan\nopened = []\n"
        f"root = {str(tmp_path)!r}\n"
        "sys.addaudithook(lambda e, a: opened.append(a[0]) if e == 'open' and str(a[0]).startswith(root) else None)\n"
        "scan([root])\nassert len(opened) == 5, opened\nprint('once')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "once\n", done.stderr


def test_cache_gives_the_same_and_parses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "low.py").write_text("import os\ndef raw(n): return os.getenv(n)")
    (source / "use.py").write_text("from low import raw\nraw('A')")
    cache = tmp_path / "cache" / "scan.json"
    first = scan([source], base=source, cache=cache)
    second = scan([source], base=source, cache=cache)
    assert first.accesses == second.accesses
    assert first.statistics.parsed > 0
    assert second.statistics.parsed == 0
    (source / "use.py").write_text("from low import raw\nraw('B')")
    third = scan([source], base=source, cache=cache)
    assert third.names == ("B",)
    assert third.statistics.parsed == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 0}', b'{"version": "x", "files": 3}', b"\xff"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.py").write_text("import os\nos.getenv('A')")
    (tmp_path / "cache").write_bytes(content)
    assert scan([tmp_path], cache=tmp_path / "cache").names == ("A",)


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError) as caught:
        scan([tmp_path / "nowhere"])
    assert caught.value.path.endswith("nowhere")


def test_order_does_not_depend_on_hashing(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import os\nNAMES = {'A', 'B', 'C'}\nfor n in NAMES: os.getenv(n)\ndef f(e, k): return e.get(k)\nf(os.environ, 'D')"
    )
    program = f"import json\nfrom omni_envinventory import scan\nprint(json.dumps(scan([{str(tmp_path)!r}]).to_json()))"
    outputs = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    document = json.loads(outputs.pop())
    assert document["schema"] == "omni-envinventory/scan/1"
    assert document["names"] == ["A", "B", "C", "D"]


def test_inspected_code_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("import os\nraise RuntimeError('imported')\nos.getenv('A')")
    (tmp_path / "sitecustomize_like.py").write_text(
        "from trap import *\nimport os\nopen('touched', 'w')\nos.getenv('B')"
    )
    program = (
        "import sys\nfrom omni_envinventory import scan\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\nbefore = set(sys.modules)\nr = scan([{str(tmp_path)!r}])\n"
        "assert r.names == ('A', 'B'), r.names\nnew = {m for m in set(sys.modules) - before}\n"
        "assert not any('trap' in m or 'like' in m for m in new), new\nprint('clean')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "clean\n", done.stderr
    assert not (tmp_path / "touched").exists()
