"""Deploy files: what is right becomes a deployment, and each kind of mistake is told with its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_serve.deploy import BUILTIN, DeployFileError, load, load_builtin, loads, models, plan, specs

VOICE = """\
name: mine
stages:
  - name: ear
    kind: listen
    options: {silence_ms: 400}
  - name: mind
    kind: reply
    backend: rules
    max_num_seqs: 7
    replicas: 2
    env: {OMP_NUM_THREADS: "2"}
  - name: mouth
    kind: speak
edges:
  - {from: ear, to: mind}
  - {from: mind, to: mouth, ring_bytes: 65536}
server:
  port: 0
  max_sessions: 3
"""


def test_a_right_file_is_what_it_says() -> None:
    found = loads(VOICE.encode(), "mine.yaml")
    assert [stage.name for stage in found.stages] == ["ear", "mind", "mouth"]
    ear, mind, mouth = specs(found)
    assert (ear.kind, ear.backend, ear.options) == ("listen", "voice", {"silence_ms": 400})
    assert (mind.backend, mind.width, mind.replicas, mind.env) == ("rules", 7, 2, {"OMP_NUM_THREADS": "2"})
    assert mind.ring_bytes == 65536
    assert mouth.ring_bytes == 4 << 20
    assert (found.server.port, found.server.max_sessions) == (0, 3)
    assert [model.kind for model in models(found)] == ["voice", "text", "transcription", "speech"]


def test_the_natural_edges_need_not_be_written() -> None:
    without = VOICE[: VOICE.index("edges:")]
    edges = loads(without.encode(), "mine.yaml").edges
    assert [(edge.source, edge.target) for edge in edges] == [("ear", "mind"), ("mind", "mouth")]


def replaced(old: str, new: str) -> str:
    assert old in VOICE
    return VOICE.replace(old, new, 1)


MISTAKES = [
    ("unknown field", replaced("max_num_seqs", "max_num_seq"), "9:5", "did you mean 'max_num_seqs'"),
    ("unknown top field", replaced("server:", "servers:"), "17:1", "did you mean 'server'"),
    ("unknown kind", replaced("kind: reply", "kind: replay"), "7:11", "did you mean 'reply'"),
    ("unknown backend", replaced("backend: rules", "backend: rule"), "8:14", "did you mean 'rules'"),
    ("no name", replaced("- name: ear\n    kind", "- kind"), "3:5", "needs a name"),
    ("a name that is none", replaced("name: ear", "name: a/b"), "3:11", "letters, digits"),
    ("the server's own name", replaced("name: ear", "name: api"), "3:11", "server's own"),
    ("no kind", replaced("    kind: reply\n", ""), "6:5", "needs 'kind'"),
    ("name and id", replaced("kind: reply", "kind: reply\n    id: x"), "8:9", "both name and id"),
    ("a stage twice", replaced("name: mind", "name: ear"), "6:5", "twice, first in line 3"),
    ("a kind twice", replaced("kind: speak", "kind: reply"), "12:5", "a second reply stage"),
    ("a part missing", VOICE[: VOICE.index("  - name: mouth")], "3:5", "speak is missing"),
    ("wrong type", replaced("max_num_seqs: 7", "max_num_seqs: many"), "9:19", "whole number"),
    ("a boolean for a number", replaced("max_num_seqs: 7", "max_num_seqs: yes"), "9:19", "whole number"),
    ("too few", replaced("replicas: 2", "replicas: 0"), "10:15", "from 1 to 64"),
    ("a huge number", replaced("replicas: 2", "replicas: 1" + "0" * 400), "10:15", "from 1 to 64"),
    ("an env that is no text", replaced('"2"', "2"), "11:28", "must be text"),
    ("an env that YAML takes for true", replaced('"2"', "on"), "11:28", "must be text"),
    ("an env nobody may carry", replaced("OMP_NUM_THREADS", "OMNI_SERVE_API_KEY"), "11:11", "OMNI_SERVE_API_KEY"),
    ("an edge from nowhere", replaced("from: ear", "from: eer"), "15:5", "did you mean 'ear'"),
    ("an edge that flows nowhere", replaced("from: ear, to: mind", "from: ear, to: mouth"), "15:5", "nothing flows"),
    ("an edge twice", replaced("from: mind, to: mouth", "from: ear, to: mind"), "16:5", "twice"),
    ("a circle", replaced("from: ear, to: mind", "from: mouth, to: mind"), "15:5", "circle"),
    ("a ring too small", replaced("65536", "4095"), "16:41", "4096"),
    ("a ring too large", replaced("65536", "67108865"), "16:41", "67108864"),
    ("a connector nobody has", replaced("ring_bytes: 65536", "connector: pipe"), "16:40", "must be one of shmring"),
    ("an unknown option", replaced("silence_ms", "silense_ms"), "5:15", "did you mean 'silence_ms'"),
    ("an option of a wrong type", replaced("silence_ms: 400", "silence_ms: long"), "5:27", "Expected `int`"),
    ("options for none", replaced("backend: rules", "backend: rules\n    options: {a: 1}"), "9:14", "takes none"),
    ("a model for none", replaced("backend: rules", "backend: rules\n    model: x"), "9:12", "ships its own"),
    (
        "a device for none",
        replaced("backend: rules", "backend: rules\n    devices: [cuda:0]"),
        "9:14",
        "runs on the CPU",
    ),
    ("a port that is none", replaced("port: 0", "port: 70000"), "18:9", "65535"),
    ("stages that are a mapping", "stages: {a: 1}\n", "1:9", "must be a list"),
    ("a stage that is text", "stages: [listen]\n", "1:10", "must be a mapping"),
    ("no stages", "name: x\n", "1:1", "needs stages"),
    ("nothing", "", "1:1", "empty"),
    ("a list", "- a\n", "1:1", "must be a mapping"),
    ("no YAML", "stages: [\n", "2:1", "not YAML"),
    ("a tab", "stages:\n\t- a\n", "2:1", "not YAML"),
    ("a key twice", replaced("kind: reply", "kind: reply\n    kind: reply"), "8:5", "twice, first in line 7"),
    ("a merge key", "a: &a {b: 1}\nstages: {<<: *a}\n", "2:10", "merge keys"),
    ("an object", "stages: !!python/object/apply:os.system [x]\n", "1:9", "asks for an object"),
    ("two documents", "stages: []\n---\nstages: []\n", "2:1", "not YAML"),
    (
        "weights without a place",
        "stages:\n  - {name: a, kind: text, backend: transformers, weights: {mode: preferred}}\n",
        "2:59",
        "needs root",
    ),
    (
        "sharing among one",
        "stages:\n  - {name: a, kind: text, backend: transformers, offload: {transfer: allgather}}\n",
        "2:5",
        "at least 2 replicas",
    ),
    ("no pipeline", "stages:\n  - {name: a, kind: diffusion}\n", "2:5", "needs model"),
    ("ray", replaced("kind: reply", "kind: reply\n    placement: ray"), "8:16", "not built"),
]


@pytest.mark.parametrize(("text", "place", "words"), [pytest.param(*rest, id=name) for name, *rest in MISTAKES])
def test_a_mistake_is_told_with_line_and_column(text: str, place: str, words: str) -> None:
    with pytest.raises(DeployFileError) as refused:
        loads(text.encode(), "mine.yaml")
    told = [str(mistake) for mistake in refused.value.mistakes]
    assert any(words in line for line in told), told
    assert any(line.startswith(f"mine.yaml:{place}:") and words in line for line in told), told


def test_all_mistakes_are_told_at_once_in_the_files_order() -> None:
    text = replaced("max_num_seqs: 7", "max_num_seqs: x").replace("port: 0", "port: x").replace("from: ear", "fro: ear")
    with pytest.raises(DeployFileError) as refused:
        loads(text.encode(), "mine.yaml")
    lines = [mistake.line for mistake in refused.value.mistakes]
    assert lines == [9, 15, 15, 18]


def test_a_value_of_env_is_never_told() -> None:
    text = replaced('OMP_NUM_THREADS: "2"', "OMP_NUM_THREADS: 8675309")
    with pytest.raises(DeployFileError) as refused:
        loads(text.encode(), "mine.yaml")
    assert "8675309" not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00",
        b"a" * (2 << 20),
        b"[" * 100_000,
        b"&a [*a]",
        b"a: &a [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(b"%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c]\n" % (c, c, *[c - 1] * 7) for c in range(98, 110)),
    ],
    ids=["not UTF-8", "too large", "too deep", "holds itself", "unfolds without end"],
)
def test_hostile_bytes_are_refused_and_bounded(data: bytes) -> None:
    with pytest.raises(DeployFileError):
        loads(data, "mine.yaml")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeployFileError, match="cannot be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", BUILTIN)
def test_the_built_in_deployments_are_right(name: str, tmp_path: Path) -> None:
    found = load_builtin(name, None if name == "voice" else str(tmp_path))
    assert found.name == name
    assert plan(found).stages
    if name == "text":
        assert found.stages[0].backend == "transformers"


def test_a_plan_counts_copies_and_rings() -> None:
    found = plan(loads(VOICE.encode(), "mine.yaml"))
    mind = found.stages[1]
    assert (mind.processes, mind.own_ring_bytes, mind.ring_bytes) == (2, 65536, 2 * (65536 + 65536))
    assert found.server_ring_bytes == 4 * (4 << 20)
