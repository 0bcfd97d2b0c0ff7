"""Beyond one Prometheus: promtool takes the examples, shards share the nodes, the edge sends enough."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.fleet import FLEET
from tests.alerts.test_tiers import queries
from tools.alerting import PROMETHEUS
from tools.promql import selectors
from tools.yamlfile import load_yaml

pytestmark = pytest.mark.system

SCALE = PROMETHEUS / "scale"
AGENTS = {"agent.yml"}
SHARDS, NODES = 4, 400


def promtool(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", sorted(SCALE.glob("*.yml")), ids=lambda path: path.name)
def test_promtool_takes_the_example(path: Path) -> None:
    done = promtool("check", "config", *(["--agent"] if path.name in AGENTS else []), path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_node_is_of_one_shard_and_no_shard_has_much_more_than_its_part(tmp_path: Path) -> None:
    counts = []
    found: list[str] = []
    for shard in range(SHARDS):
        config = load_yaml((SCALE / "shard.yml").read_text("utf-8"))
        del config["rule_files"]
        job = config["scrape_configs"][0]
        job["static_configs"] = [{"targets": [f"gpu-{n:03}:9410" for n in range(NODES)]}]
        kept = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
        assert [rule["regex"] for rule in kept] == ["0"]
        kept[0]["regex"] = str(shard)
        path = tmp_path / f"{shard}.yml"
        path.write_text(json.dumps(config), "utf-8")
        mine = _nodes(path)
        counts.append(len(mine))
        found += mine
    assert sorted(found) == [f"gpu-{n:03}" for n in range(NODES)]
    assert max(counts) < 1.3 * NODES / SHARDS


def _nodes(path: Path) -> list[str]:
    done = promtool("check", "service-discovery", "--timeout=2s", path, "wirewatch")
    assert done.returncode == 0, done.stderr
    targets: list[dict[str, Any]] = json.loads(done.stdout)
    return [one["labels"]["node"] for one in targets if one["labels"]]


def test_what_the_edge_sends_is_enough_for_the_fleet() -> None:
    (rule,) = load_yaml((SCALE / "edge.yml").read_text("utf-8"))["remote_write"][0]["write_relabel_configs"]
    sent = re.compile(rule["regex"])
    asked = {s.name for who, query in queries() if who == FLEET.title for s in selectors(query) if s.name}
    assert len(asked) > 10
    assert not {name for name in asked if not sent.fullmatch(name)}
    assert not sent.fullmatch("wirewatch_nvlink_transmit_bytes_total"), "what is for one node stays here"
