"""`wirewatch fleet status` as a process: table, exit codes, JSON, options."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.fleet.promapi import FINDINGS, HEARD, SINCE, STATE, PromApi, fleet, served
from tests.node.cli.schemas import complaints
from tests.processes import run_wirewatch

OK, DEGRADED, FAILED, UNKNOWN, USAGE, NO_ANSWER, CONFIG = 0, 1, 2, 3, 64, 69, 78


def status(api: PromApi, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_wirewatch("fleet", "status", "--prometheus", api.url, *arguments)


def test_the_table_worst_first_with_what_to_do() -> None:
    with served(PromApi(fleet())) as api:
        done = status(api)
    assert (done.returncode, done.stderr) == (FAILED, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "FAILED: 6 nodes: 1 FAILED, 1 UNKNOWN, 1 silent, 1 DEGRADED, 2 OK"
    rows = [line.split() for line in lines[3:7]]
    assert [(one[0], one[2], one[3]) for one in rows] == [
        ("FAILED", "n1", "nvlink.link_down"), ("UNKNOWN", "n2", "inventory.blind"),
        ("silent", "n3", "silent"), ("DEGRADED", "n4", "gpu.throttle"),
    ]  # fmt: skip
    assert "GPU 2 link 7" in lines[3]
    assert "GPU 3" in lines[4]
    for rule, do in (
        ("nvlink.link_down", "reset the GPU"),
        ("inventory.blind", "wirewatch check"),
        ("silent", "BMC"),
    ):
        told = done.stdout.partition(f"\n{rule}: ")[2].partition("\n\n")[0]
        assert do in told


def test_racks_and_leaves_are_reported_where_targets_have_them() -> None:
    rows = fleet()
    (silent,) = (one for one in rows[STATE] if one["metric"]["node"] == "n3")
    silent["metric"] |= {"rack": "r07", "leaf": "l2"}
    with served(PromApi(rows)) as api:
        done, plain = status(api, "--json"), status(api)
    assert {one["node"]: (one["rack"], one["leaf"]) for one in json.loads(done.stdout)["nodes"]} == {
        "n1": ("", ""), "n2": ("", ""), "n3": ("r07", "l2"), "n4": ("", ""),
    }  # fmt: skip
    header, *lines = (line.split() for line in plain.stdout.splitlines()[2:7])
    assert header[:5] == ["state", "cluster", "node", "rack", "leaf"]
    assert [one[3:5] for one in lines] == [["-", "-"], ["-", "-"], ["r07", "l2"], ["-", "-"]]


def test_json_is_as_its_schema() -> None:
    with served(PromApi(fleet())) as api:
        done = status(api, "--json", "--cluster", "a", "--cluster", "b")
    assert complaints("wirewatch.fleet-status.1", done.stdout) == []
    made = json.loads(done.stdout)
    assert (made["health"], made["known"], made["clusters"]) == ("failed", 6, ["a", "b"])
    assert made["nodes"][0]["node"] == "n1"
    assert made["nodes"][0]["subject"] == {"gpu": "2", "uuid": "GPU-2", "link": "7"}
    assert len(api.asked) == 4
    assert all('cluster=~"a|b"' in query for query, _ in api.asked)


@pytest.mark.parametrize(
    ("states", "code"),
    [({4, 3, 2, 1}, FAILED), ({3, 1}, UNKNOWN), ({2}, UNKNOWN), ({1}, DEGRADED), (set(), OK)],
)
def test_the_exit_code_is_the_worst(states: set[int], code: int) -> None:
    rows = fleet()
    rows[STATE] = [one for one in rows[STATE] if int(one["value"][1]) in states]
    with served(PromApi(rows)) as api:
        done = status(api)
    assert done.returncode == code
    if not states:
        assert done.stdout == "OK: 6 nodes: 6 OK\n"


def test_no_known_node_and_half_an_answer_are_not_well() -> None:
    with served(PromApi({STATE: [], SINCE: [], FINDINGS: [], HEARD: []})) as api:
        done, of_one = status(api), status(api, "--cluster", "nowhere")
    assert done.returncode == of_one.returncode == UNKNOWN
    assert "recording rules are not loaded" in done.stdout
    assert "no node is known of nowhere" in of_one.stdout
    with served(PromApi({**fleet(), STATE: []}, {"warnings": ["store x is away"]})) as api:
        done = status(api)
    assert done.returncode == UNKNOWN
    assert "the answer is not whole: store x is away" in done.stdout


def test_no_answer_has_a_code_of_its_own() -> None:
    done = status(PromApi(url="http://127.0.0.1:1"))
    assert (done.returncode, done.stdout) == (NO_ANSWER, "")
    assert done.stderr == "wirewatch: http://127.0.0.1:1: Connection refused\n"


def test_who_asks(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\n", "utf-8")
    with served(PromApi(fleet())) as api:
        status(api, "--token-file", str(token), "--header", "X-Scope-OrgID: gpu")
        status(api, "--user", "me", "--password-file", str(token))
    sent = [{name.lower(): text for name, text in headers.items()} for _, headers in api.asked]
    assert {one["authorization"] for one in sent[:4]} == {"Bearer t0ken"}
    assert {one["x-scope-orgid"] for one in sent[:4]} == {"gpu"}
    assert {one["authorization"] for one in sent[4:]} == {"Basic bWU6dDBrZW4="}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), USAGE), (("--prometheus", "prometheus:9090"), CONFIG),
        (("--prometheus", "http://h", "--token-file", "/no/such"), USAGE),
        (("--prometheus", "http://h", "--user", "me"), USAGE),
        (("--prometheus", "http://h", "--key-file", "/etc/hostname"), USAGE),
        (("--prometheus", "http://h", "--header", "no colon"), USAGE),
        (("--prometheus", "http://h", "--timeout", "0"), USAGE),
        (("--prometheus", "http://h", "--timeout", "99999999d"), USAGE),
        (("--prometheus", "http://h", "--user", "a:b", "--password-file", "/etc/hostname"), USAGE),
        (("--prometheus", "http://h", "--ca-file", "/etc/hostname"), CONFIG),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(arguments: tuple[str, ...], code: int) -> None:
    done = run_wirewatch("fleet", "status", *arguments)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith("wirewatch: ")
