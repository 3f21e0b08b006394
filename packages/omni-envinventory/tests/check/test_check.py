"""The check's rules, each shown failing and holding."""
# ruff: noqa: E501

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from omni_envinventory import Rule, check, load_inventory, parse_inventory, render
from omni_envinventory.check import CheckResult, output
from omni_envinventory.testing import assert_inventory

HEAD = '[inventory]\nname = "app"\nsources = ["app.py"]\nowned_prefixes = ["APP_"]\n'
PORT = '\n[[variable]]\nname = "APP_PORT"\ncategory = "public"\n'
CODE = 'import os\nos.getenv("APP_PORT")\n'


def run(tmp_path: Path, inventory: str, code: str = CODE, **files: str) -> CheckResult:
    (tmp_path / "app.py").write_text(code)
    for name, text in files.items():
        target = tmp_path / name.replace("__", "/").replace("_yaml", ".yaml").replace("_md", ".md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "envinventory.toml").write_text(inventory)
    return check(load_inventory(tmp_path / "envinventory.toml"), tmp_path, today=dt.date(2026, 6, 1))


def rules(result: CheckResult) -> list[tuple[str, str]]:
    return [(str(finding.rule), finding.name) for finding in result.findings]


def test_all_is_well(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD + PORT)
    assert result.ok
    assert output.summary(result).startswith("The inventory holds")


def test_read_but_unclassified(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD + PORT, CODE + 'os.getenv("OTHER")\nos.getenv("OTHER")')
    assert rules(result) == [("unclassified", "OTHER")]
    assert result.findings[0].where == "app.py:3"


def test_near_miss_in_code(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD + PORT, CODE + 'os.getenv("APP_PROT")')
    assert rules(result) == [("near-miss", "APP_PROT")]
    assert result.findings[0].text.endswith("did you mean APP_PORT?")


def test_classified_but_never_read(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD + PORT, "import os")
    assert rules(result) == [("never-read", "APP_PORT")]
    assert result.findings[0].line == 6


def test_pattern_must_be_declared(tmp_path: Path) -> None:
    code = CODE + 'def f(i): os.getenv(f"RANK_{i}")'
    assert rules(run(tmp_path, HEAD + PORT, code)) == [("unclassified", "RANK_*")]
    assert run(tmp_path, HEAD + PORT + '\n[[variable]]\nname = "RANK_*"\ncategory = "platform"\n', code).ok


def test_dynamic_until_waived_with_a_reason(tmp_path: Path) -> None:
    code = CODE + "import sys\ndef f():\n    os.getenv(sys.argv[1])"
    result = run(tmp_path, HEAD + PORT, code)
    assert rules(result) == [("dynamic", "")]
    waiver = '\n[[waiver]]\npath = "app.py"\nscope = "f"\nreason = "a debugging aid"\nnames = ["DBG_*"]\n'
    assert run(tmp_path, HEAD + PORT + waiver, code).ok
    assert rules(run(tmp_path, HEAD + PORT + waiver, CODE)) == [("stale-waiver", "")]
    declared = '\n[[variable]]\nname = "DBG_X"\ncategory = "internal"\n'
    assert run(tmp_path, HEAD + PORT + declared + waiver, code).ok


def test_deprecated_past_its_date_or_version(tmp_path: Path) -> None:
    old = PORT + 'lifecycle = "deprecated"\nreplacement = "APP_LISTEN"\nuntil = {}\n'
    assert rules(run(tmp_path, HEAD + old.format('"2026-05-31"'))) == [("expired", "APP_PORT")]
    assert run(tmp_path, HEAD + old.format("2026-06-02")).ok
    version = HEAD + 'version = "1.10"\n'
    assert rules(run(tmp_path, version + old.format('"1.9"'))) == [("expired", "APP_PORT")]
    assert run(tmp_path, version + old.format('"2.0"')).ok


def test_removed_is_a_tombstone(tmp_path: Path) -> None:
    gone = (
        HEAD
        + PORT
        + '\n[[variable]]\nname = "APP_OLD"\ncategory = "public"\nlifecycle = "removed"\nreplacement = "APP_PORT"\n'
    )
    assert run(tmp_path, gone).ok
    result = run(tmp_path, gone, CODE + 'os.getenv("APP_OLD")')
    assert rules(result) == [("removed-used", "APP_OLD")]
    assert "use APP_PORT" in result.findings[0].message


def test_required_prefix_and_the_shrinking_list(tmp_path: Path) -> None:
    two = PORT + '\n[[variable]]\nname = "LEGACY"\ncategory = "public"\n'
    code = CODE + 'os.getenv("LEGACY")'
    house = '\n[rules]\nrequired_prefixes = ["APP_"]\ngrandfathered = {}\n'
    assert rules(run(tmp_path, HEAD + house.format("[]") + two, code)) == [("prefix", "LEGACY")]
    assert run(tmp_path, HEAD + house.format('["LEGACY"]') + two, code).ok
    assert rules(run(tmp_path, HEAD + house.format('["LEGACY", "GONE"]') + two, code)) == [("grandfathered", "GONE")]
    grown = load_inventory(tmp_path / "envinventory.toml")
    before = parse_inventory(house.format("[]"))
    assert ("grandfathered", "LEGACY") in rules(check(grown, tmp_path, baseline=before))


def test_counts_are_a_decision(tmp_path: Path) -> None:
    counted = HEAD + "\n[rules.counts]\npublic = {}\n" + PORT
    assert run(tmp_path, counted.format(1)).ok
    assert rules(run(tmp_path, counted.format(2))) == [("counts", "")]


def test_reference_page_both_ways(tmp_path: Path) -> None:
    head = HEAD + 'reference = "docs/env.md"\n'
    page = "| Name | Type |\n| --- | --- |\n| `APP_PORT` | x |\n"
    assert rules(run(tmp_path, head + PORT)) == [("undocumented", "")]
    assert run(tmp_path, head + PORT, docs__env_md=page).ok
    assert rules(run(tmp_path, head + PORT, docs__env_md="Use `APP_PORT`.\n```\n| `APP_PORT` |\n```\n")) == [
        ("undocumented", "APP_PORT")
    ]
    assert rules(run(tmp_path, head + PORT, docs__env_md=page + "| `APP_GHOST` | x |\n")) == [
        ("documented-unknown", "APP_GHOST")
    ]
    assert rules(run(tmp_path, head + PORT, docs__env_md=page + "\n### `APP_GHOST`\n")) == [
        ("documented-unknown", "APP_GHOST")
    ]


def test_a_generated_page_that_is_outdated(tmp_path: Path) -> None:
    head = HEAD + 'reference = "docs/env.md"\n'
    run(tmp_path, head + PORT)
    page = render(load_inventory(tmp_path / "envinventory.toml"), title="Variables")
    assert run(tmp_path, head + PORT, docs__env_md=page).ok
    assert rules(run(tmp_path, head + PORT + 'type = "integer"\n', docs__env_md=page)) == [("page-outdated", "")]


def test_the_page_names_a_variable_that_nobody_reads(tmp_path: Path) -> None:
    head = HEAD + 'reference = "docs/env.md"\n'
    result = run(tmp_path, head + PORT, "import os", docs__env_md="| `APP_PORT` | x |\n")
    assert ("documented-unknown", "APP_PORT") in rules(result)
    assert not result.ok


def test_deployment_files(tmp_path: Path) -> None:
    head = HEAD + 'mentions = ["deploy/*.yaml", "Dockerfile*"]\n'
    deployment = (
        "spec:\n  containers:\n  - name: app\n    env:\n    - name: APP_PORT\n      value: '1'\n    - name: APP_PROT\n      value: '1'\n"
        "    - name: STRANGE\n      valueFrom:\n        secretKeyRef: {name: NOT_ONE, key: k}\n    - name: VLLM_PORT_80_TCP_ADDR\n      value: 10.0.0.1\n"
    )
    result = run(tmp_path, head + PORT, deploy__k8s_yaml=deployment)
    assert rules(result) == [("near-miss", "APP_PROT"), ("mentioned-unknown", "STRANGE")]
    assert result.findings[0].where == "deploy/k8s.yaml:7"


def test_stage_env_keys(tmp_path: Path) -> None:
    head = HEAD + 'mentions = ["*.yaml"]\n'
    stages = "stages:\n  - name: thinker\n    env: {APP_PORT: '1'}\n  - name: talker\n    env:\n      APP_PORT: '1'\n      OTHER: '2'\n"
    result = run(tmp_path, head + PORT + 'stages = ["thinker"]\n', pipeline_yaml=stages)
    assert rules(result) == [("stage-env", "APP_PORT"), ("stage-env", "OTHER")]
    assert [finding.line for finding in result.findings] == [6, 7]


def test_nothing_to_scan_is_a_finding(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD.replace("app.py", "src/nowhere"))
    assert ("no-sources", "") in rules(result)


def test_outputs(tmp_path: Path) -> None:
    result = run(tmp_path, HEAD + PORT, CODE + 'os.getenv("A%,:B")')
    (finding,) = result.findings
    assert output.plain(result.findings).startswith("app.py:3: unclassified: reads A%,:B")
    assert output.github(result.findings) == (
        "::error file=app.py,line=3,title=omni-envinventory unclassified::reads A%25,:B, which the inventory does not have"
    )
    document = json.loads(output.as_json(result))
    assert set(document) == {"schema", "ok", "findings", "files", "names", "patterns", "dynamic"}
    assert document["schema"] == "omni-envinventory/check/1"
    assert document["findings"][0] == finding.to_json()
    assert "unclassified" in output.table(result.findings)


def test_pytest_helper(tmp_path: Path) -> None:
    run(tmp_path, HEAD + PORT)
    assert assert_inventory(tmp_path / "envinventory.toml").ok
    run(tmp_path, HEAD + PORT, CODE + 'os.getenv("OTHER")')
    with pytest.raises(AssertionError, match=r"app\.py:3: unclassified"):
        assert_inventory(tmp_path / "envinventory.toml")


def test_every_rule_has_a_case() -> None:
    here = Path(__file__).read_text()
    assert [rule for rule in Rule if f'"{rule}"' not in here] == []
