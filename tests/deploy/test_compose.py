"""The local stack: what it mounts is there and is what its reader takes. Docker itself is not run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dashboards.boards import FOLDER as BOARDS
from dashboards.boards import files
from tests.deploy.compose import FILE, FOLDER, agents, arguments, mounts, services, source_of
from wirewatch.catalogue import discover
from wirewatch.cli.serve import serve
from wirewatch.config import load

PINNED = re.compile(r"\$\{[A-Z]+_IMAGE:-[a-z/]+:v?\d+\.\d+(\.\d+)?(-[a-z-]+)?\}")
"""A version by default, and a variable for a digest."""
DATA_SOURCE = {"name", "uid", "type", "access", "url", "isDefault", "editable", "jsonData"}
PROVIDER = {"name", "type", "folder", "allowUiUpdates", "updateIntervalSeconds", "options"}
"""Keys of Grafana's documentation of its provisioning files; it drops others without a word."""


def test_the_file_is_as_compose_specifies() -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_file_that_is_not_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "compose.yml"
    broken.write_text(FILE.read_text("utf-8").replace("restart:", "restrat:"), "utf-8")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(broken)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1


def test_what_is_mounted_is_there_and_only_read() -> None:
    found = list(mounts())
    assert len(found) >= 9
    for mount in found:
        assert mount.source.exists(), mount
        assert mount.read_only, mount


def test_every_file_of_the_stack_is_mounted() -> None:
    mounted = {mount.source for mount in mounts()}
    left = {path for path in FOLDER.rglob("*") if path.is_file()} - mounted
    assert {path.name for path in left} == {"compose.yml", "README.md"}


def test_images_have_a_version_and_ports_are_of_this_machine_alone() -> None:
    for name, service in services().items():
        assert "build" in service or PINNED.fullmatch(service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_agents_have_limits_of_memory_tasks_and_files() -> None:
    for agent in agents():
        given = services()[agent]
        assert (given["mem_limit"], given["pids_limit"], given["ulimits"]) == ("256m", 512, {"nofile": 4096})


def test_agents_are_started_with_options_that_there_are() -> None:
    assert len(agents()) == 3
    for agent in agents():
        words = arguments(agent, "127.0.0.1:0")
        serve.make_context("serve", words[1:])
        assert words[0] == "serve"
        load(source_of(agent, "/etc/wirewatch/wirewatch.toml"), discover())
        test = services()[agent]["healthcheck"]["test"]
        assert "http://127.0.0.1:9410/readyz" in test[-1]


def test_an_option_that_there_is_not_is_found() -> None:
    assert CliRunner().invoke(serve, [*arguments(agents()[0], "127.0.0.1:0")[1:], "--no-such"]).exit_code != 0


def test_the_agents_are_built_from_this_dockerfile() -> None:
    for agent in agents():
        build = services()[agent]["build"]
        text = (FOLDER / build["context"] / "Dockerfile").read_text("utf-8")
        assert re.search(rf"^FROM \S+ AS {build['target']}$", text, re.MULTILINE)


def test_prometheus_scrapes_each_agent_and_has_all_rules() -> None:
    config = yaml.safe_load(source_of("prometheus", "/etc/prometheus/prometheus.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    (targets,) = (one["targets"] for one in job["static_configs"])
    assert targets == [f"{agent}:9410" for agent in agents()]
    folder = source_of("prometheus", "/etc/prometheus/rules")
    recording, alerts = config["rule_files"]
    assert (folder / recording.removeprefix("rules/")).is_file()
    (command,) = services()["prometheus"]["command"]
    assert alerts == "../../prometheus/wirewatch-alerts.yml"
    assert "/etc/prometheus/rules/wirewatch-alerts.yml > /prometheus/wirewatch-alerts.yml" in command
    (manager,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert manager.partition(":")[0] in services()


def provisioned(kind: str) -> dict[str, Any]:
    path = source_of("grafana", f"/etc/grafana/provisioning/{kind}/wirewatch.yml")
    told: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return told


def test_grafana_has_its_data_sources() -> None:
    told = yaml.safe_load(
        source_of("grafana", "/etc/grafana/provisioning/datasources/wirewatch.yml").read_text("utf-8")
    )
    assert told["apiVersion"] == 1
    for one in told["datasources"]:
        assert set(one) <= DATA_SOURCE
        host = re.fullmatch(r"http://([a-z]+):\d+", one["url"])
        assert host is not None
        assert host[1] in services()
    alerting = source_of("grafana", "/etc/grafana/provisioning/alerting")
    asked = {
        query["datasourceUid"]
        for path in alerting.glob("*.yml")
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        for query in rule["data"]
    }
    assert asked == {"prometheus", "__expr__"}
    assert "prometheus" in {one["uid"] for one in told["datasources"]}


def test_grafana_has_the_committed_dashboards() -> None:
    told = yaml.safe_load(
        source_of("grafana", "/etc/grafana/provisioning/dashboards/wirewatch.yml").read_text("utf-8")
    )
    assert told["apiVersion"] == 1
    (provider,) = told["providers"]
    assert set(provider) <= PROVIDER
    folder = source_of("grafana", provider["options"]["path"])
    assert folder == BOARDS
    assert {path.name for path in folder.iterdir()} == set(files())
    home = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(source_of("grafana", home).read_text("utf-8"))["uid"] == "wirewatch-fleet"


@pytest.mark.parametrize("target", ["/etc/nothing", "/etc/prometheus"])
def test_what_is_not_mounted_is_found(target: str) -> None:
    with pytest.raises(LookupError):
        source_of("grafana", target)
