"""Each form that the scan promises to see, with what it must say of it; and what it must not take for one."""
# ruff: noqa: E501, ISC004

from __future__ import annotations

import pytest

from omni_envinventory import Operation, When, scan_source

FORMS: dict[str, tuple[str, set[tuple[str | None, str]]]] = {
    "from-import alias": ("from os import environ as e\ne['A']", {("A", "read")}),
    "module alias": ("import os as o\no.environ.get('A')", {("A", "read")}),
    "star import": ("from os import *\ngetenv('A')", {("A", "read")}),
    "getenvb": ("import os\nos.getenvb(b'A')", {("A", "read")}),
    "putenv and unsetenv": ("import os\nos.putenv('A', '1')\nos.unsetenv('B')", {("A", "write"), ("B", "delete")}),
    "write": ("import os\nos.environ['A'] = '1'", {("A", "write")}),
    "delete": ("import os\ndel os.environ['A']", {("A", "delete")}),
    "pop": ("import os\nos.environ.pop('A', None)", {("A", "delete")}),
    "setdefault": ("import os\nos.environ.setdefault('A', '1')", {("A", "write")}),
    "membership": ("import os\n'A' in os.environ\n'B' not in os.environ", {("A", "membership"), ("B", "membership")}),
    "membership of keys": ("import os\n'A' in os.environ.keys()", {("A", "membership")}),
    "update": ("import os\nos.environ.update({'A': '1'}, B='2')", {("A", "write"), ("B", "write")}),
    "update of pairs": ("import os\nos.environ.update([('A', '1')])", {("A", "write")}),
    "union in place": ("import os\nos.environ |= {'A': '1'}", {("A", "write")}),
    "bulk iteration": ("import os\nfor k in os.environ: print(k)", {("*", "bulk")}),
    "bulk clear": ("import os\nos.environ.clear()", {("*", "bulk")}),
    "each name found": (
        "import os\nfor k in list(os.environ):\n    del os.environ[k]",
        {("*", "delete"), ("*", "bulk")},
    ),
    "copy": ("import os\nenv = dict(os.environ)\nenv['A']", {("A", "read"), ("*", "bulk")}),
    "copy written": ("import os\nenv = os.environ.copy()\nenv['A'] = '1'", {("A", "write"), ("*", "bulk")}),
    "handed on whole": ("import os, json\njson.dumps(dict(**os.environ))", {("*", "bulk")}),
    "dunder": ("import os\nos.environ.__getitem__('A')", {("A", "read")}),
    "getattr": ("import os\ngetattr(os, 'environ')['A']", {("A", "read")}),
    "import by literal name": ("import importlib\nimportlib.import_module('os').environ['A']", {("A", "read")}),
    "vars": ("import os\nvars(os)['environ']['A']", {("A", "read")}),
    "match": ("import os\nmatch os.environ:\n    case {'A': a}: pass", {("A", "read")}),
    "walrus": ("import os\nif (v := os.environ.get('A')): pass", {("A", "read")}),
    "partial": ("import os, functools\nf = functools.partial(os.getenv, 'A')\nf()", {("A", "read")}),
    "map": ("import os\nlist(map(os.getenv, ['A', 'B']))", {("A", "read"), ("B", "read")}),
    "percent": ("import os\nos.getenv('A_%s_%s' % ('X', 'Y'))", {("A_X_Y", "read")}),
    "format": ("import os\nos.getenv('A_{x}'.format(x='X'))", {("A_X", "read")}),
    "join": ("import os\nos.getenv('_'.join(['A', 'B']))", {("A_B", "read")}),
    "upper": ("import os\nos.getenv('ab'.upper())", {("AB", "read")}),
    "local constant rebound": (
        "import os\ndef f():\n    n = 'A'\n    os.getenv(n)\n    n = 'B'\n    os.getenv(n)\nf()",
        {("A", "read"), ("B", "read")},
    ),
    "built up": ("import os\nn = 'A'\nn += '_B'\nos.getenv(n)", {("A_B", "read")}),
    "dict of names": (
        "import os\nM = {'x': 'A', 'y': 'B'}\nfor n in M.values(): os.getenv(n)",
        {("A", "read"), ("B", "read")},
    ),
    "items": ("import os\nfor k, n in {'x': 'A'}.items(): os.getenv(n)", {("A", "read")}),
    "zip keeps pairs": (
        "import os\nfor a, b in zip(('A', 'B'), ('X', 'Y')): os.getenv(f'{a}_{b}')",
        {("A_X", "read"), ("B_Y", "read")},
    ),
    "enumerate": ("import os\nfor i, n in enumerate(['A']): os.getenv(f'{n}_{i}')", {("A_0", "read")}),
    "range": ("import os\nfor i in range(2): os.getenv(f'R{i}')", {("R0", "read"), ("R1", "read")}),
    "list filled later": ("import os\nN = []\nN.append('A')\nfor n in N: os.getenv(n)", {("A", "read")}),
    "enum": (
        "import os, enum\nclass E(enum.Enum):\n    X = 'A'\n    Y = 'B'\nfor e in E: os.getenv(e.value)",
        {("A", "read"), ("B", "read")},
    ),
    "default argument": ("import os\ndef f(n='A'): return os.getenv(n)\nf()", {("A", "read")}),
    "keyword-only": ("import os\ndef f(*, n): return os.getenv(n)\nf(n='A')", {("A", "read")}),
    "star arguments": ("import os\ndef f(*a): return os.getenv(*a)\nf('A', 'x')", {("A", "read")}),
    "mapping as argument": ("import os\ndef f(env, k): return env[k]\nf(os.environ, 'A')", {("A", "read")}),
    "getter as argument": ("import os\ndef f(get): return get('A')\nf(os.getenv)", {("A", "read")}),
    "method wrapper": (
        "import os\nclass R:\n    def __init__(self, p): self.p = p\n    def get(self, k): return os.getenv(self.p + k)\n"
        "R('OMNI_').get('A')",
        {("OMNI_A", "read")},
    ),
    "static method": (
        "import os\nclass R:\n    @staticmethod\n    def g(k): return os.getenv(k)\nR.g('A')",
        {("A", "read")},
    ),
    "class method": (
        "import os\nclass R:\n    P = 'X_'\n    @classmethod\n    def g(cls, k): return os.getenv(cls.P + k)\nR.g('A')",
        {("X_A", "read")},
    ),
    "inherited method": (
        "import os\nclass B:\n    K = None\n    def g(self): return os.getenv(self.K)\nclass C(B):\n    K = 'A'\nC().g()",
        {("A", "read")},
    ),
    "property": (
        "import os\nclass R:\n    @property\n    def key(self): return 'A'\n    def g(self): return os.getenv(self.key)",
        {("A", "read")},
    ),
    "mapping kept in an attribute": (
        "import os\nclass R:\n    def __init__(self): self.e = os.environ\n    def g(self):\n        return self.e['A']",
        {("A", "read")},
    ),
    "closure": (
        "import os\ndef outer():\n    e = os.environ\n    def inner():\n        return e['A']\n    return inner",
        {("A", "read")},
    ),
    "dataclass field": (
        "import os\nfrom dataclasses import dataclass\n@dataclass\nclass S:\n    n: str\n"
        "def f(s: S): return os.getenv(s.n)\nf(S('A'))",
        {("A", "read")},
    ),
    "registry of lambdas": (
        "import os\nV = {'A': lambda: os.getenv('A'), 'B': lambda: int(os.environ.get('B', 1))}\n"
        "def __getattr__(name):\n    return V[name]()",
        {("A", "read"), ("B", "read")},
    ),
    "registry of made readers": (
        "import os\ndef flag(n):\n    def read(): return os.getenv(n)\n    return read\nV = {'A': flag('A'), 'B': flag('B')}",
        {("A", "read"), ("B", "read")},
    ),
    "generator context manager": (
        "import os, contextlib\n@contextlib.contextmanager\ndef env():\n    yield os.environ\nwith env() as e:\n    e['A']",
        {("A", "read")},
    ),
    "thread": (
        "import os, threading\ndef f(k): os.getenv(k)\nthreading.Thread(target=f, args=('A',))",
        {("A", "read")},
    ),
    "submit": ("import os\ndef f(k): os.getenv(k)\ndef g(pool): pool.submit(f, 'A')", {("A", "read")}),
    "expandvars": ("import os\nos.path.expandvars('$A/${B}')", {("A", "read"), ("B", "read")}),
    "expandvars of a default": (
        "import os\nos.path.expandvars(os.environ.get('A', '$B/x'))",
        {("A", "read"), ("B", "read"), (None, "read")},
    ),
    "child environment built up": (
        "import subprocess\nenv = {}\nenv['A'] = '1'\nenv.update(B='2')\nsubprocess.Popen(['x'], env=env)",
        {("A", "write"), ("B", "write")},
    ),
    "child environment from keys": (
        "import subprocess\nN = ('A', 'B')\nsubprocess.run(['x'], env={**dict.fromkeys(N, '1')})",
        {("A", "write"), ("B", "write")},
    ),
    "child environment not all known": (
        "import subprocess\ndef f(spec): subprocess.run(['x'], env={'A': '1', **spec.env})",
        {("A", "write"), (None, "write")},
    ),
    "child environment handed through": (
        "import subprocess\ndef f(e): subprocess.run(['x'], env=e)\nf({'A': '1'})",
        {("A", "write")},
    ),
    "execve": ("import os\nos.execve('x', ['x'], {'A': '1'})", {("A", "write")}),
    "click": ("import click\n@click.option('--x', envvar=['A', 'B'])\ndef f(x): pass", {("A", "read"), ("B", "read")}),
    "typer": ("import typer\ndef f(x=typer.Option(1, envvar='A')): pass", {("A", "read")}),
    "automatic prefix": (
        "import click\n@click.command(context_settings={'auto_envvar_prefix': 'OMNI'})\ndef f(): pass",
        {("OMNI_*", "read")},
    ),
    "eval": ("eval('__import__(\"os\").environ')", {(None, "read")}),
    "escaping getter": ("import os\ndef f(thing): thing.use(os.getenv)", {(None, "read")}),
    "parameter shadows a constant": ("import os\nK = 'A'\ndef f(K): return os.getenv(K)\nf('B')", {("B", "read")}),
    "local shadows os": ("import os\ndef f(os): return os.environ['A']", set()),
    "look-alike attribute": ("def f(job): return job.environ['A'], job.getenv('B')", set()),
    "wsgi": ("def app(environ, start):\n    return environ['PATH_INFO']", set()),
    "monkeypatching": (
        "import os\nfrom unittest import mock\n"
        "def test(monkeypatch):\n    monkeypatch.setenv('A', '1')\n    with mock.patch.dict(os.environ, {'B': '1'}): pass",
        set(),
    ),
    "comment and docstring": ("'''os.environ[\"A\"]'''\n# os.getenv('B')\nx = 'environ'", set()),
}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: str) -> None:
    source, expected = FORMS[form]
    assert {(access.name, str(access.operation)) for access in scan_source(source).accesses} == expected


def test_when_it_happens() -> None:
    source = (
        "import os\nA = os.getenv('A')\ndef f(x=os.getenv('B')):\n    return os.getenv('C')\nclass K:\n    D = os.getenv('D')\n"
        "def g(): return os.getenv('E')\nE = g()\nif __name__ == '__main__':\n    os.getenv('F')\n"
        "G = lambda: os.getenv('G')\n"
    )
    when = {access.name: access.when for access in scan_source(source).accesses}
    assert {name for name, moment in when.items() if moment is When.IMPORT} == {"A", "B", "D", "E"}
    assert {name for name, moment in when.items() if moment is When.CALL} == {"C", "F", "G"}


def test_the_place_of_a_wrapped_access_is_where_its_name_is_given() -> None:
    source = "import os\ndef raw(n):\n    return os.getenv(n)\ndef flag(k):\n    return raw(k)\n\nX = flag('A')"
    (access,) = scan_source(source).accesses
    assert (access.place.line, access.place.scope) == (7, "<module>")
    assert access.via is not None
    assert (access.via.line, access.via.scope) == (3, "raw")


def test_a_function_that_nobody_calls_is_dynamic() -> None:
    (access,) = scan_source("import os\ndef read(name): return os.getenv(name)").accesses
    assert access.dynamic
    assert "no call was followed" in access.detail


def test_a_wrapper_that_is_called_is_not() -> None:
    result = scan_source("import os\ndef read(name): return os.getenv(name)\nread('A')")
    assert not result.dynamic
    assert result.names == ("A",)


def test_recursion_ends_and_is_dynamic() -> None:
    result = scan_source("import os\ndef f(n):\n    os.getenv(n)\n    f(n + 'x')\nf('A')")
    assert "A" in result.names
    assert result.dynamic


def test_operations_are_all_used() -> None:
    seen = {operation for _, expected in FORMS.values() for _, operation in expected}
    assert seen == set(map(str, Operation))
