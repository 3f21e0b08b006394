"""What deployment files set, in every way their formats allow, and what only looks like it."""

from __future__ import annotations

import pytest

from omni_envinventory.check import find_mentions

YAML: dict[str, tuple[str, set[tuple[str, str | None, int]]]] = {
    "mapping": ("env:\n  A: '1'\n  B: 2  # c\n", {("A", "1", 2), ("B", "2", 3)}),
    "names and values": (
        "env:\n- name: A\n  value: x\n- name: B\n  valueFrom: {f: g}\n",
        {("A", "x", 2), ("B", None, 4)},
    ),
    "indented items": ("env:\n  - name: A\n    value: x\n  - value: y\n    name: B\n", {("A", "x", 2), ("B", "y", 4)}),
    "flow items": ("env:\n  - {name: A, value: x}\n", {("A", "x", 2)}),
    "assignments": ("environment:\n  - A=1\n  - B\n  - 'C=x=y'\n", {("A", "1", 2), ("B", None, 3), ("C", "x=y", 4)}),
    "flow mapping": ("env: {A: '1', B: \"x,y\"}\n", {("A", "1", 1), ("B", "x,y", 1)}),
    "flow sequence": ("environment: ['A=1', B=2]\n", {("A", "1", 1), ("B", "2", 1)}),
    "deep": ("a:\n  b:\n    - c:\n        env:\n          A: 1\n", {("A", "1", 5)}),
    "block scalar is text": ("env:\n  A: |\n    B: 1\n    C=2\n  D: 1\n", {("A", "|", 2), ("D", "1", 5)}),
    "text elsewhere": ("run: |\n  env:\n    A: 1\nenv:\n  B: 1\n", {("B", "1", 5)}),
    "comments": ("# env:\n#   A: 1\nenv:\n  # B: 1\n  C: 'x # y'\n", {("C", "x # y", 5)}),
    "several documents": ("env:\n  A: 1\n---\nenv:\n  B: 1\n", {("A", "1", 2), ("B", "1", 5)}),
    "other keys": ("args:\n  A: 1\nlabels:\n  - name: B\n", set()),
    "empty": ("env:\nenv: {}\nenvironment: []\n", set()),
    "quoted keys": ('"env":\n  "A": 1\n', {("A", "1", 2)}),
    "ray": ("runtime_env:\n  env_vars:\n    A: 1\n", {("A", "1", 3)}),
    "template": (
        "env:\n  {{- range .Values.env }}\n  - name: {{ .name }}\n  {{- end }}\n  - name: A\n    value: x\n",
        {("A", "x", 5)},
    ),
    "value that looks like a key": ("env:\n  A: http://x:80/y\n", {("A", "http://x:80/y", 2)}),
}


@pytest.mark.parametrize("case", YAML, ids=str)
def test_yaml(case: str) -> None:
    text, expected = YAML[case]
    assert {(m.name, m.value, m.line) for m in find_mentions(text, "deploy/x.yaml")} == expected


def test_stages() -> None:
    text = "stages:\n- name: a\n  env:\n    A: 1\n- stage_id: 1\n  env: {B: 1}\n- env: {C: 1}\nenv: {D: 1}\n"
    assert {m.name: m.stage for m in find_mentions(text, "p.yml")} == {"A": "a", "B": "1", "C": "2", "D": None}


def test_stages_as_mapping() -> None:
    assert [(m.name, m.stage) for m in find_mentions("stages:\n  thinker:\n    env:\n      A: 1\n", "p.yml")] == [
        ("A", "thinker")
    ]


DOCKER: dict[str, tuple[str, set[tuple[str, int]]]] = {
    "pairs": ("FROM x\nENV A=1 B=\"x y\" C='z'\n", {("A", 2), ("B", 2), ("C", 2)}),
    "old form": ("ENV A some words here\n", {("A", 1)}),
    "continued": ("ENV A=1 \\\n    # a comment\n    B=2\nRUN x\n", {("A", 1), ("B", 1)}),
    "arguments are not variables": ("ARG A=1\nRUN B=2 x\n", set()),
    "comments": ("# ENV A=1\n  env b=2\n", {("b", 2)}),
    "open quote": ('ENV A="x B=2\n', {("A", 1), ("B", 1)}),
}


@pytest.mark.parametrize("case", DOCKER, ids=str)
def test_dockerfile(case: str) -> None:
    text, expected = DOCKER[case]
    assert {(m.name, m.line) for m in find_mentions(text, "docker/Dockerfile.cuda")} == expected


def test_other_files_mention_nothing() -> None:
    assert find_mentions("env:\n  A: 1\n", "notes.txt") == []
