"""The baseline of a running daemon: learned, kept over restarts, compared, accepted, damaged."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.schemas import complaints
from tests.node.daemon.process import FAST, Daemon
from tests.node.hw.children import until
from tests.patience import patient
from tests.processes import run_wirewatch

DEMO = ("--replay", "demo-dgx-h200")
DOWN = '[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,[67])"\nset = 0\n'
OK, DEGRADED, FAILED, USAGE, CONFIG = 0, 1, 2, 64, 78
DRIFT = "/api/v1/topology/drift"


def config(folder: Path, drift: str, *, state: bool, every: float, nvlink: bool) -> str:
    """Without the NVLink collector drift alone tells of a link."""
    text = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"')
    text = text.replace("[collectors.nvlink]\n", f"[collectors.nvlink]\nenabled = {str(nvlink).lower()}\n")
    kept = f'[state]\ndirectory = "{folder}/state"\n' if state else ""
    return (
        f"{text}\n{kept}[drift]\ninterval = {every}\n{drift}[probe]\nenabled = false\n"
        "[policy.verdict]\nsettle = 0.5\n"
    )


def daemon(
    folder: Path, overlay: str = "", drift: str = "", *, state: bool = True, every: float = 0.3,
    nvlink: bool = False,
) -> Daemon:  # fmt: skip
    file = folder / "fault.toml"
    file.write_text(f'about = "a fault"\n{overlay}', "utf-8")
    change = ("--overlay", str(file)) if overlay else ()
    return Daemon((*DEMO, *change), folder, config(folder, drift, state=state, every=every, nvlink=nvlink))


def order(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of `wirewatch topology`."""
    done = run_wirewatch(
        "topology", *words, "--socket", f"{folder}/w.sock", env={**os.environ, "SUDO_USER": "night-shift"}
    )
    return done.returncode, done.stdout, done.stderr


def drift(running: Daemon) -> dict[str, Any]:
    text = running.get(DRIFT).text
    assert complaints("wirewatch.topology-drift.1", text) == []
    document: dict[str, Any] = json.loads(text)
    return document


def rules(running: Daemon) -> dict[str, str]:
    return {one["rule"]: one["health"] for one in running.get("/api/v1/findings").json()["findings"]}


SOON = DOWN.replace("set = 0", f"from = {patient(6)}\nset = 0")


@pytest.mark.usefixtures("learned")
def test_lost_links_are_reported_accepted_and_stay_accepted(tmp_path: Path) -> None:
    with daemon(tmp_path, DOWN) as running:
        running.wait("/api/v1/findings", '"topology.nvlink_lost"')
        assert rules(running)["topology.nvlink_lost"] == "failed"
        (change,) = drift(running)["changes"]
        assert change["text"] == "GPU 2 (...0002): NVLink 18 -> 16 links up, links 6, 7 down"
        assert running.get("/metrics").series()[
            "wirewatch_topology_drift", frozenset({("kind", "nvlink_lost")})
        ] == 1.0  # fmt: skip
        code, out, _ = order(tmp_path, "diff")
        assert (code, change["id"] in out, change["text"] in out) == (FAILED, True, True)
        code, _, err = order(tmp_path, "accept", change["id"], "--why", "until the board comes")
        assert (code, change["text"] in err, "--yes" in err) == (USAGE, True, True), err
        assert order(tmp_path, "diff")[0] == FAILED
        code, out, _ = order(tmp_path, "accept", change["id"], "--yes", "--why", "until the board comes")
        assert (code, "night-shift accepted" in out, "no change since then" in out) == (OK, True, True)
        running.wait("/health", '"health":"ok"')
        # It is killed, and a slow disk may still be writing.
        until(lambda: "until the board comes" in (tmp_path / "state" / "baseline.json").read_text("utf-8"))
    with daemon(tmp_path, DOWN) as running:
        running.wait(DRIFT, '"why":"until the board comes"')
        running.ready()
        assert rules(running) == {}
        assert order(tmp_path, "diff")[0] == OK
    with daemon(tmp_path) as running:
        running.wait(DRIFT, '"origin":"learned"')
        assert drift(running)["changes"] == []


@pytest.mark.usefixtures("learned")
def test_all_that_is_there_can_be_accepted_at_once(tmp_path: Path) -> None:
    with daemon(tmp_path, DOWN) as running:
        running.wait("/api/v1/findings", '"topology.nvlink_lost"')
        code, _, err = order(tmp_path, "accept", "--why", "looked at it")
        assert (code, "18 -> 16 links up" in err, "--yes" in err) == (USAGE, True, True), err
        assert order(tmp_path, "accept", "--yes", "--why", "two links less from now on")[0] == OK
        running.wait("/health", '"health":"ok"')
        assert drift(running)["baseline"]["origin"] == "accepted"
        assert "accepted by night-shift: two links less" in order(tmp_path, "baseline")[1]


@pytest.mark.usefixtures("learned")
def test_what_is_accepted_is_read_after_the_order(tmp_path: Path) -> None:
    """Before: the reading of ten minutes ago was accepted, while two links were down."""
    with daemon(tmp_path, SOON, every=600.0, nvlink=True) as running:
        running.wait(DRIFT, '"origin":"learned"')
        running.wait("/api/v1/findings", '"nvlink.link_down"')
        assert drift(running)["changes"] == []
        code, _, err = order(tmp_path, "accept", "--why", "as it is")
        assert (code, "18 -> 16 links up" in err, "first: nvlink.link_down" in err) == (
            USAGE,
            True,
            True,
        )
        assert drift(running)["changes"][0]["kind"] == "nvlink_lost"


def test_a_change_can_be_accepted_as_soon_as_a_baseline_was_learned(tmp_path: Path) -> None:
    """Before: "there is no baseline yet: " until the next reading."""
    with daemon(tmp_path, drift="[policy.drift]\nlearn = 1\n", every=600.0) as running:
        running.ready()
        code, _, err = order(tmp_path, "accept", "0badc0de", "--why", "x")
        assert (code, "there is no change 0badc0de, and no other" in err) == (USAGE, True), err
        assert drift(running)["baseline"]["origin"] == "learned"


@pytest.mark.usefixtures("learned")
def test_while_the_gpus_are_released_nothing_is_accepted(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.wait(DRIFT, '"origin":"learned"')
        assert run_wirewatch("release", "--for", "1h", "--socket", f"{tmp_path}/w.sock").returncode == OK
        code, _, err = order(tmp_path, "accept", "--why", "as it is")
        assert (code, "the topology cannot be read now: released" in err) == (USAGE, True), err


def test_a_node_born_with_sixteen_links_does_not_learn_them(tmp_path: Path) -> None:
    with daemon(tmp_path, DOWN) as running:
        running.wait(DRIFT, "16 of 18")
        document = drift(running)
        assert document["baseline"] is None
        assert "GPU 2 (...0002)" in document["learning"]
        assert "no baseline yet: " in order(tmp_path, "baseline")[1]
    assert not (tmp_path / "state" / "baseline.json").exists()


@pytest.mark.usefixtures("learned")
def test_a_damaged_baseline_is_put_aside_and_named(tmp_path: Path) -> None:
    path = tmp_path / "state" / "baseline.json"
    damaged = path.read_bytes()[:-100]
    path.write_bytes(damaged)
    with daemon(tmp_path, DOWN) as running:
        running.wait("/api/v1/findings", '"topology.baseline"')
        assert rules(running) == {"topology.baseline": "unknown"}
        (aside,) = path.parent.glob("baseline.json.corrupt-*")
        assert aside.read_bytes() == damaged
        assert aside.name in running.get("/api/v1/findings").text
        assert order(tmp_path, "accept", "--yes", "--why", "looked at it")[0] == OK
        running.wait("/health", '"health":"ok"')
    assert aside.read_bytes() == damaged


@pytest.mark.usefixtures("learned")
def test_another_nodes_baseline_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "state" / "baseline.json"
    path.write_text(
        path.read_text("utf-8").replace("GPU-00000000-0000-4000-8000-", "GPU-00000000-0000-4000-9000-")
    )
    foreign = path.read_bytes()
    with daemon(tmp_path, DOWN) as running:
        running.wait("/api/v1/findings", '"topology.baseline"')
        running.wait(DRIFT, '"baseline":null')
        until(lambda: any(path.parent.glob("baseline.json.corrupt-*")))
        (aside,) = path.parent.glob("baseline.json.corrupt-*")
        assert aside.read_bytes() == foreign


@pytest.mark.usefixtures("learned")
def test_what_takes_the_place_of_another_nodes_baseline_loses_nothing(tmp_path: Path) -> None:
    """Accepted in the moment in which the other's file is still there."""
    path = tmp_path / "state" / "baseline.json"
    path.write_text(
        path.read_text("utf-8").replace("GPU-00000000-0000-4000-8000-", "GPU-00000000-0000-4000-9000-")
    )
    foreign = path.read_bytes()
    with daemon(tmp_path, every=600.0) as running:
        running.wait("/api/v1/findings", '"topology.baseline"')
        assert order(tmp_path, "accept", "--why", "looked at it")[0] == OK
        running.wait(DRIFT, '"origin":"accepted"')
        until(path.exists)
    assert foreign in [one.read_bytes() for one in path.parent.glob("baseline.json.corrupt-*")]


def test_without_a_state_folder_it_is_learned_again_each_time(tmp_path: Path) -> None:
    with daemon(tmp_path, state=False) as running:
        running.wait(DRIFT, '"origin":"learned"')
    assert not (tmp_path / "state").exists()


def test_a_products_baseline_that_has_more_is_failed(tmp_path: Path) -> None:
    done = run_wirewatch("topology", "show", "--replay", "demo-dgx-h200", "--json")
    given = tmp_path / "product.json"
    given.write_text(done.stdout, "utf-8")
    with daemon(tmp_path, DOWN, f'baseline = "{given}"\n') as running:
        running.wait("/api/v1/findings", '"topology.shape"')
        assert rules(running)["topology.shape"] == "failed"
        assert "16 of 18" in running.get("/api/v1/findings").text


def test_a_products_baseline_that_is_none_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[drift]\nbaseline = "no-such.json"\n', "utf-8")
    done = run_wirewatch("serve", *DEMO, "--config", str(file))
    assert done.returncode == CONFIG
    assert done.stderr.splitlines()[-1].startswith(
        "wirewatch: drift.baseline: no-such.json: neither a recording"
    )


def test_an_order_that_cannot_be_followed_is_reported(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.wait(DRIFT, '"origin":"learned"')
        code, _, err = order(tmp_path, "accept", "0badc0de", "--why", "x")
        assert (code, "0badc0de" in err) == (USAGE, True), err
