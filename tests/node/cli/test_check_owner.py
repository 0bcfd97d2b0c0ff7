"""`wirewatch check --owner`: a probe where the last one is old, with what it finds counted in."""

import json
import time
from pathlib import Path

import pytest

from tests.node.cli.checks import Checked, check, overlay
from tests.node.cli.replies import finding, health, reply, replying, server
from tests.node.hw.children import until
from tests.node.probe import recordings
from tests.node.probe.histories import stored
from tests.node.probe.recordings import Change, with_probe
from tests.patience import HANGS
from wirewatch.cli.check.answer import Grounds
from wirewatch.cli.check.command import Attempt, CheckRequest, Work
from wirewatch.core.types import Health
from wirewatch.documents.health import ProbeStatus

NO_DRIVER = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="about a machine without GPUs")
JOB = ("slurm", "Jobs()", f'set = [{{id = "7", state = "RUNNING", gpus = {list(range(8))}}}]')
LONG = ("--deadline", "30s")


def owned(folder: Path, *changes: Change, owner: str = "slurm:7", options: tuple[str, ...] = LONG) -> Checked:
    """A check for the owner on a node whose probe comes out so; its state is kept beside it."""
    config = folder / "wirewatch.toml"
    config.write_text(f'[state]\ndirectory = "{folder}/state"\n', "utf-8")
    (folder / "state").mkdir(exist_ok=True)
    recording = folder / "node"
    if not recording.exists():
        with_probe(recording, *changes)
    node = ("--replay", str(recording), *overlay(folder, JOB), "--config", str(config))
    return check(*node, "--owner", owner, "--json", *options)


def kept(folder: Path) -> list[str]:
    """Who ran the probes of the history."""
    return [record.started_by for record in stored(folder / "state" / "probes.sqlite")]


def test_a_probe_is_run_kept_and_then_is_fresh(tmp_path: Path) -> None:
    first = owned(tmp_path, options=(*LONG, "--require-fresh-probe")).document
    assert (first["health"], first["may_start"], first["source"]) == ("ok", True, "own")
    assert (first["probe"]["fresh"], first["probe"]["age_seconds"], first["probe"]["required"]) == (
        True,
        0,
        True,
    )
    assert abs(first["probe"]["at"] - time.time()) < 60
    assert kept(tmp_path) == ["command"]
    second = owned(tmp_path).document
    assert (second["health"], second["probe"]["fresh"]) == ("ok", True)
    assert 0 < second["probe"]["age_seconds"] < 60
    assert kept(tmp_path) == ["command"]
    older = owned(tmp_path, options=(*LONG, "--max-age", "0")).document
    assert older["probe"]["age_seconds"] == 0
    assert kept(tmp_path) == ["command", "command"]


@pytest.mark.parametrize(
    ("change", "code", "rule"), [(recordings.slow, 2, "probe.busbw"), (recordings.uneven, 0, "probe.uneven")]
)
def test_what_a_probe_finds_counts(tmp_path: Path, change: Change, code: int, rule: str) -> None:
    done = owned(tmp_path, change)
    told = done.document
    assert (done.code, {f["rule"] for f in told["findings"]}) == (code, {rule})
    assert told["health"] == ("failed" if code else "degraded")


@pytest.mark.parametrize(
    ("change", "owner", "options", "why"),
    [
        (recordings.failed, "slurm:7", LONG, "no probe: the driver said no"),
        (recordings.uneven, "slurm:8", LONG, "no probe: slurm:7 holds GPUs"),
        (recordings.uneven, "slurm:7", ("--deadline", "9s"), "s are left, it may take 10 s"),
    ],
)
def test_without_a_probe_it_is_told_why(
    tmp_path: Path, change: Change, owner: str, options: tuple[str, ...], why: str
) -> None:
    done = owned(tmp_path, change, owner=owner, options=options)
    told = done.document
    assert (done.code, told["health"], told["probe"]["fresh"]) == (0, "ok", False)
    assert why in told["why"]


@NO_DRIVER
def test_the_daemons_verdict_stands_beside_the_probe(tmp_path: Path) -> None:
    """Here it cannot be run, and the daemon's word stays what it was."""
    probe = {"at": 1.0, "age_seconds": 9000.0, "fresh": False, "required": False}
    body = json.dumps(health(time.time(), "failed", finding(), probe=probe)).encode()
    with server(tmp_path, replying(reply(body))) as socket:
        state = str(tmp_path / "state")
        options = ("--socket", socket, "--owner", "slurm:7", *LONG, "--json")
        document = check(*options, STATE_DIRECTORY=state).document
    assert (document["health"], document["source"]) == ("failed", "daemon")
    assert document["why"].startswith("no probe: ")
    assert document["probe"]["age_seconds"] == 9000.0


def test_a_probe_that_the_daemon_does_not_know_yet_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs may be shorter than the daemon's turn, and each ends with an epilog."""
    assert owned(tmp_path, recordings.uneven).document["health"] == "degraded"
    before = Grounds(
        Health.OK,
        "daemon",
        verdict_at=time.time(),
        probe=ProbeStatus(1.0, 9000.0, fresh=False, required=False),
    )
    monkeypatch.setattr(Attempt, "_verdict", lambda _: before)

    def again(max_age: float) -> Grounds:
        request = CheckRequest(
            end=time.monotonic() + HANGS, config=tmp_path / "wirewatch.toml", max_age=max_age,
            owner="slurm:7", replay=str(tmp_path / "node"), overlays=(overlay(tmp_path, JOB)[1],),
        )  # fmt: skip
        attempt = Attempt(request, lambda: None)
        try:
            return attempt.run()
        finally:
            attempt.tidy()

    made = kept(tmp_path)
    grounds = again(600.0)
    assert kept(tmp_path) == made
    assert (grounds.health, [f.rule for f in grounds.findings]) == (Health.DEGRADED, ["probe.uneven"])
    assert grounds.probe is not None
    assert grounds.probe.age_seconds is not None
    assert 0 < grounds.probe.age_seconds < 60
    assert again(0.0).probe != grounds.probe
    assert len(kept(tmp_path)) > len(made)


def test_a_probe_that_does_not_end_leaves_what_was_known(tmp_path: Path) -> None:
    recording = with_probe(tmp_path / "node", seconds=600.0)
    request = CheckRequest(
        end=time.monotonic() + HANGS, replay=recording, overlays=(overlay(tmp_path, JOB)[1],), owner="slurm:7"
    )
    begun = Attempt(request, lambda: None)
    work = Work(begun.run, begun.tidy)
    until(lambda: begun.so_far().why.endswith("; the probe did not end in time"))
    with pytest.raises(TimeoutError):
        work.outcome(0.0)
    grounds = begun.so_far()
    begun.tidy()
    assert (grounds.health.name, grounds.source) == ("OK", "own")
