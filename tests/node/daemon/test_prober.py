"""An agent and its prober, processes of their own with real workers, and all that can come between them."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proof.hardware.processes import children
from tests.groups import dies
from tests.node.cli.schemas import complaints
from tests.node.daemon.nobody import NOBODY
from tests.node.daemon.proberprocess import DEMO, ProberProcess, working
from tests.node.daemon.process import FAST, Daemon
from tests.node.daemon.test_service_probe import PROBES, probes, value
from tests.node.hw.children import is_dead, until
from tests.node.hw.recordings import overlay_file
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from wirewatch import __version__
from wirewatch.client import request
from wirewatch.core.types import Expect
from wirewatch.daemon.prober import CONNECTIONS
from wirewatch.hw.host import SystemClock
from wirewatch.probe import remote
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import LostOrder, ProbeAnswer, RemoteProber
from wirewatch.probe.setup import ProbeRequest, Variation

STOP = HANGS
CONFIG = 78
QUICK = ProbeOptions(settle=0.0)
WANTED = remote.PROBE_REQUEST.dump_json(ProbeRequest(QUICK, "command", live=False))
FOREIGN = """
[[change]]
port = "nvml"
match = "gpu3/ComputeRunningProcesses()"
from = 8.0
set = [{pid = 4242}]
"""
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's processes")


def config(folder: Path, probe: str = "") -> str:
    """An agent that asks the prober in this folder, soon and often."""
    usual = "interval = 0.3\nsettle = 0.0\nprobe_interval = 0.5\njitter = 0.0\nbudget = 1.0"
    return (
        FAST.replace('socket = ""', f'socket = "{folder}/agent.sock"')
        + f"[probe]\nprober = '{folder}/prober.sock'\n{usual}\n{probe}\n"
    )


def agent(folder: Path, probe: str = "") -> Daemon:
    return Daemon(("--replay", DEMO), folder, config(folder, probe))


def elsewhere(prober: ProberProcess) -> RemoteProber:
    return RemoteProber(prober.socket, SystemClock(), live=False)


def attempt(prober: ProberProcess, seconds: float = HANGS, **wanted: Any) -> Any:
    until_then = SystemClock().mono() + seconds
    return elsewhere(prober).run(ProbeRequest(QUICK, "command", **wanted), until_then)


def last(running: Daemon) -> dict[str, Any]:
    past: list[dict[str, Any]] = probes(running)["past"]
    return past[0] if past else {"outcome": "", "why": ""}


def no_finding(running: Daemon) -> None:
    document = running.get("/health").json()
    assert {f["rule"] for f in document["findings"]}.isdisjoint({"probe.blind", "probe.failed"})
    assert running.get("/livez").status == 200


def as_nobody(prober: ProberProcess, ask: str) -> str:
    """Why somebody of another user is refused; `ask` is what he asks, "" of the answer where he is not."""
    with Process(
        ("tests.node.daemon.nobody", prober.socket, ask), subprocess.PIPE, subprocess.PIPE
    ) as process:
        out, wrong = process.communicate(HANGS)
    assert process.wait() == 0, wrong
    return out.strip()


# --- from end to end


def test_a_probe_goes_from_the_agent_to_the_worker_and_back(tmp_path: Path) -> None:
    with working(tmp_path, "good"), agent(tmp_path) as running:
        running.wait(PROBES, '"outcome":"ok"')
        document = probes(running)
        assert document["gate"]["engine"] == "nccl"
        assert {len(document["last"][part]) for part in ("gpus", "copies")} == {8, 56}
        assert last(running)["why"] == ""
        series = running.get("/metrics").series()
        assert value(series, "probe_runs_total", result="ok") >= 1
        assert value(series, "probe_skips_total", reason="prober_away") == 0
        assert value(series, "probe_fresh") == 1


def test_a_study_goes_to_the_worker_and_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with working(tmp_path, "good") as prober:
        wanted = Variation("int8", in_place=False, network=True, ops=("broadcast",))
        came = attempt(prober, variation=wanted)
        plan, (conditions, *_) = came.probed.plan, came.probed.conditions
        assert (came.probed.outcome, plan.ops, plan.dtype, plan.in_place) == (
            "ok", ("broadcast",), "int8", False,
        )  # fmt: skip
        assert plan.environment == (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"))
        assert len(conditions.network) == 10
        for bad, why in (
            (Variation(dtype="int7"), "dtypes are "),
            (Variation(iterations=0), "iterations are "),
        ):
            refused = attempt(prober, variation=bad)
            assert isinstance(refused, Refusal)
            assert f"options: {why}" in refused.detail


def test_commands_ask_the_prober_too_and_the_daemon_takes_over_what_they_find(tmp_path: Path) -> None:
    state = f"[state]\ndirectory = '{tmp_path}/state'"
    with working(tmp_path, "good") as prober:
        text = config(tmp_path, state).replace("probe_interval = 0.5", "probe_interval = 600.0")
        with Daemon(("--replay", DEMO), tmp_path, text) as running:
            running.wait(PROBES, '"outcome":"ok"')
            file = str(tmp_path / "wirewatch.toml")
            done = run_wirewatch("probe", "--replay", DEMO, "--json", "--config", file)
            assert complaints("wirewatch.probe.1", done.stdout) == []
            assert '"by": "command"' in done.stdout
            assert '"outcome": "ok"' in done.stdout
            assert prober.log.count("probe ok") >= 2
            until(lambda: "taken over from another process" in running.log)


def test_at_the_first_sight_of_somebody_the_prober_ends_the_worker(tmp_path: Path) -> None:
    busy = overlay_file(tmp_path, FOREIGN)
    with working(tmp_path, "silent", "--overlay", busy) as prober:
        came = attempt(prober)
        assert (came.probed.outcome, came.probed.why) == (
            "preempted", "a process that is not the probe's came to GPU 3: 4242",
        )  # fmt: skip
        assert dies(prober.worker())
        refused = attempt(prober)
        assert (refused.refusal.reason, refused.probed) == (SkipReason.BUSY, None)
        looked = elsewhere(prober).facts("auto", SystemClock().mono() + 10)
        assert not isinstance(looked, Refusal)
        assert looked.facts is not None
        assert looked.facts.uses[3].processes == frozenset({4242})


# --- it goes away


def test_a_prober_that_is_killed_takes_its_worker_along_and_the_agent_says_so(tmp_path: Path) -> None:
    with agent(tmp_path) as running:
        running.wait(PROBES, "no such socket; is the prober running?")
        assert probes(running)["gate"]["reason"] == "prober_away"
        with working(tmp_path, "tests.node.probe.hangingworker") as prober:
            worker = prober.worker()
            prober.process.kill()
            assert dies(worker)
            running.wait(PROBES, '"outcome":"away"')
        running.wait(PROBES, "nothing listens there; the prober is not running")
        assert last(running)["why"].startswith("the prober went away in the middle of it: ")
        assert last(running)["seconds"] > 0
        no_finding(running)
        series = running.get("/metrics").series()
        assert value(series, "probe_runs_total", result="away") == 1
        assert value(series, "probe_skips_total", reason="prober_away") >= 1
        assert value(series, "probe_gpu_seconds_total") > 0
        with working(tmp_path, "good"):
            running.wait(PROBES, '"outcome":"ok"')
        assert "no probe can run, the prober is away" in running.log
        assert "the prober answers again" in running.log
        no_finding(running)


def test_told_to_stop_in_the_middle_of_a_probe_it_ends_that_and_tells(tmp_path: Path) -> None:
    with working(tmp_path, "stubborn") as prober, agent(tmp_path) as running:
        worker = prober.worker()
        (child,) = [pid for pid in children(prober.process.pid) if pid != worker]
        status, _ = prober.terminate()
        assert status == 0
        assert dies(worker)
        assert is_dead(child)
        running.wait(PROBES, '"outcome":"preempted"')
        assert last(running)["why"] == "the prober ends"
        no_finding(running)
        assert "Traceback" not in prober.log + running.log


def test_one_that_hangs_costs_a_probe_and_nothing_else(tmp_path: Path) -> None:
    with working(tmp_path, "good") as prober, agent(tmp_path, "deadline = 2.0\nkill_after = 1.0") as running:
        running.wait(PROBES, '"outcome":"ok"')
        prober.process.send_signal(signal.SIGSTOP)
        reply = running.wait(PROBES, "prober_away")
        assert "no answer within" in reply.text
        running.wait("/metrics", 'wirewatch_probe_skips_total{reason="prober_away"} 1')
        no_finding(running)
        prober.process.send_signal(signal.SIGCONT)
        running.wait(PROBES, '"open":true')
        prober.process.send_signal(signal.SIGSTOP)
        status, _ = running.terminate()
        assert status == 0


def test_an_agent_that_goes_in_the_middle_of_a_probe_ends_it_and_the_next_one_probes(tmp_path: Path) -> None:
    with working(tmp_path, "silent") as prober:
        with agent(tmp_path) as running:
            worker = prober.worker()
            running.process.kill()
            running.process.wait(STOP)
            assert dies(worker)
            until(lambda: "probe preempted" in prober.log)
            assert "the caller is gone" in prober.log
        prober.pid_file.unlink()
        with agent(tmp_path):
            assert prober.worker() != worker


# --- it gives way


def test_release_reaches_the_prober_in_the_middle_of_a_probe(tmp_path: Path) -> None:
    with (
        working(tmp_path, "stubborn") as prober,
        agent(tmp_path) as running,
    ):
        worker = prober.worker()
        (child,) = [pid for pid in children(prober.process.pid) if pid != worker]
        control = str(tmp_path / "control.sock")
        status, answer = request(control, "POST", "/release", b'{"seconds": 60}', STOP)
        assert (status, complaints("wirewatch.release.1", answer.decode())) == (200, [])
        assert b'"stuck":[],"unsure":""' in answer
        assert dies(worker)
        assert is_dead(child)
        assert children(prober.process.pid) == []
        assert last(running)["outcome"] in {"", "preempted"}
        time.sleep(1.0)
        assert children(prober.process.pid) == []
        # Whoever is not the agent is refused as well.
        looked = elsewhere(prober).facts("auto", SystemClock().mono() + 10)
        assert not isinstance(looked, Refusal)
        assert looked.refusal is not None
        assert (looked.refusal.reason, "released until" in looked.refusal.detail) == (SkipReason.LOCKED, True)
        prober.pid_file.unlink()
        assert request(control, "POST", "/resume", b"{}", STOP)[0] == 200
        assert prober.worker() != worker


def test_a_release_outlives_the_agent_in_the_prober_and_can_be_ended_by_the_next(tmp_path: Path) -> None:
    control = str(tmp_path / "control.sock")
    with working(tmp_path, "good") as prober:
        with agent(tmp_path) as running:
            running.wait(PROBES, '"outcome":"ok"')
            assert request(control, "POST", "/release", b'{"seconds": 600}', STOP)[0] == 200
            running.process.kill()
            running.process.wait(STOP)
        with agent(tmp_path) as running:
            running.wait(PROBES, "the prober lists no GPUs: released: released until")
            assert probes(running)["gate"]["reason"] == "locked"
            assert b"nothing was released" in request(control, "POST", "/resume", b"{}", STOP)[1]
            running.wait(PROBES, '"outcome":"ok"')
            no_finding(running)
        assert "GPUs are watched again" in prober.log


def test_a_check_for_an_owner_asks_the_prober(tmp_path: Path) -> None:
    def why() -> str:
        file = tmp_path / "check.toml"
        # At the usual intervals: those of the agent here give a play of minutes hundreds of probes.
        file.write_text(f"[probe]\nprober = '{tmp_path}/prober.sock'\n", "utf-8")
        command = ("check", "--replay", DEMO, "--config", str(file), "--owner", "slurm:7")
        done = run_wirewatch(*command, "--deadline", "40s", "--json")
        return str(json.loads(done.stdout)["why"])

    assert "no such socket; is the prober running?" in why()
    with working(tmp_path, "good"):
        assert "slurm:7 holds no GPU here" in why()


def test_whether_a_prober_that_hangs_has_let_go_is_not_known_and_told(tmp_path: Path) -> None:
    with working(tmp_path, "good") as prober, agent(tmp_path) as running:
        running.wait(PROBES, '"outcome":"ok"')
        prober.process.send_signal(signal.SIGSTOP)
        done = run_wirewatch("release", "--socket", str(tmp_path / "agent.sock"))
        assert done.returncode == 70
        assert "the prober may still hold GPUs: " in done.stderr
        assert "every handle was closed" not in done.stdout
        prober.process.kill()
        prober.process.wait()
        # Where no process is, nobody holds anything.
        assert b'"unsure":""' in request(str(tmp_path / "control.sock"), "POST", "/release", b"{}", STOP)[1]


def test_once_nobody_asks_any_more_no_handle_is_held(tmp_path: Path) -> None:
    with working(tmp_path, "good", daemon__prober__IDLE=0.5) as prober:
        assert attempt(prober).probed.outcome == "ok"
        until(lambda: children(prober.process.pid) == [])
        until(lambda: "every GPU handle is closed until the next one" in prober.log)
        assert attempt(prober).probed.outcome == "ok"


# --- who may ask, and what


def test_one_thing_at_a_time(tmp_path: Path) -> None:
    with working(tmp_path, "silent", daemon__prober__PATIENCE=0.2) as prober:
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(prober.socket)
            head = f"POST /probe HTTP/1.1\r\nHost: x\r\n{remote.VERSION}: {__version__}\r\n"
            first.sendall(f"{head}Content-Length: {len(WANTED)}\r\n\r\n".encode() + WANTED)
            worker = prober.worker()
            came = attempt(prober)
            assert (came.refusal.reason, came.probed) == (SkipReason.LOCKED, None)
            looked = elsewhere(prober).facts("auto", SystemClock().mono() + 10)
            assert not isinstance(looked, Refusal)
            assert looked.refusal is not None
            assert looked.refusal.detail == "the prober is at work for another caller"
        assert dies(worker)


def test_another_version_is_reported_clearly_and_does_no_harm(tmp_path: Path) -> None:
    with working(tmp_path, "good") as prober:
        for target in (remote.FACTS, remote.PROBE, remote.TERMS):
            for other in ("9.9.9", "", "x" * 300):
                status, told = prober.ask(target, b"{}", other)
                assert (status, told["detail"].endswith("restart both from one image")) == (409, True)
        # Whoever wants the GPUs free is heard.
        assert prober.ask(remote.RELEASE, b'{"seconds": 5}', "9.9.9")[1]["released"] is True
        assert prober.ask(remote.RESUME, b"{}", "9.9.9")[1]["released"] is False
        assert prober.log.count("refused") == 9
        assert not prober.pid_file.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"\xff", b"{", b'{"options": {}}', WANTED[:-1], b"[" * 100_000,
        WANTED.replace(b'"by":"command"', b'"by":"mallory"'),
        WANTED.replace(b'"settle":0.0', b'"settle":-1.0'),
        WANTED.replace(b'"settle":0.0', b'"settle":1e999'), WANTED.replace(b'"links":null', b'"lynx":null'),
        WANTED.replace(b'"ranks":4', b'"ranks":0'), WANTED.replace(b'"engine":"auto"', b'"engine":"sh"'),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(nonsense: ProberProcess, body: bytes) -> None:
    status, told = nonsense.ask(remote.PROBE, body)
    assert (status, type(told["detail"]), "\n" in told["detail"]) == (422, str, False)
    assert not nonsense.pid_file.exists()


@pytest.fixture(scope="module")
def nonsense(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with working(tmp_path_factory.mktemp("nonsense"), "good", daemon__prober__REQUEST_SECONDS=0.5) as prober:
        yield prober


def test_nobody_talks_for_long_nor_much(nonsense: ProberProcess) -> None:
    version = ((remote.VERSION, __version__),)
    status, _ = request(nonsense.socket, "POST", remote.PROBE, b"x" * (300 << 10), STOP, headers=version)
    assert status == 413
    for said in (
        b"",
        b"POST /probe HTTP/1.1\r\n",
        b"POST /probe HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(nonsense.socket)
            client.sendall(said)
            client.settimeout(STOP)
            assert b"200" not in client.recv(1000)
    assert nonsense.ask(remote.FACTS, b'{"engine": "auto", "live": false}')[0] == 200
    assert "Traceback" not in nonsense.log


def test_silent_connections_keep_no_caller_out(nonsense: ProberProcess) -> None:
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3 * CONNECTIONS)]
    for client in waiting:
        client.connect(nonsense.socket)
    looked = elsewhere(nonsense).facts("auto", SystemClock().mono() + 10)
    for client in waiting:
        client.close()
    assert not isinstance(looked, Refusal)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may walk to, which none of pytest's is."""
    with tempfile.TemporaryDirectory(prefix="wirewatch-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@ROOT
def test_only_the_sockets_user_and_group_may_ask(open_folder: Path) -> None:
    look = "facts"
    with working(open_folder, "good") as prober:
        place = Path(prober.socket)
        assert place.stat().st_mode & 0o777 == 0o660
        assert "not allowed; ask as the user that the prober runs as" in as_nobody(prober, look)
        place.chmod(0o666)
        assert f"uid {NOBODY}" in as_nobody(prober, look)
        assert "may not send orders here" in as_nobody(prober, look)
    with working(open_folder, "good", "--group", str(NOBODY)) as prober:
        assert Path(prober.socket).stat().st_gid == NOBODY
        assert as_nobody(prober, look) == ""
        assert "only root may force a probe" in as_nobody(prober, "force")
        assert not prober.pid_file.exists()
        assert attempt(prober, force=True).probed.forced is True


def test_a_prober_that_is_stopped_in_a_probe_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(runtime))
    with working(tmp_path, "silent") as prober, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(attempt, prober)
        prober.worker()
        assert len(list(runtime.glob("wirewatch-probe-*"))) == 1
        prober.process.send_signal(signal.SIGTERM)
        assert prober.process.wait(STOP) == 0
        asked.result(STOP)
        assert list(runtime.glob("wirewatch-probe-*")) == []


def test_what_is_allowed_is_this_probers_own_configuration(tmp_path: Path) -> None:
    """The demo's GPUs have 645 MB in use, which an asker may not talk away."""
    file = tmp_path / "prober.toml"
    file.write_text("[probe]\nunseen_bytes = 1\nkill_after = 0.5\n", "utf-8")
    with working(tmp_path, "silent", "--config", str(file)) as prober:
        assert attempt(prober).refusal.reason is SkipReason.MEMORY
        probed = attempt(prober, force=True).probed
        assert (probed.outcome, "0.5 s" in probed.why) == ("timeout", True)


def test_within_is_counted_from_the_question(tmp_path: Path) -> None:
    with working(tmp_path, "silent") as prober:
        probed = attempt(prober, within=3.0).probed
        assert (probed.outcome, probed.seconds < QUICK.kill_after) == ("timeout", True)
        late = attempt(prober, within=0.0)
        assert (late.refusal.reason, late.probed) == (SkipReason.PROBER_AWAY, None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProberProcess]:
    with working(tmp_path_factory.mktemp("good"), "good") as prober:
        yield prober


def test_what_it_would_measure_is_reported_where_the_worker_would_run(good: ProberProcess) -> None:
    terms = elsewhere(good).terms(QUICK, Expect())
    came = attempt(good)
    assert getattr(terms, "plan", None) == came.probed.plan


def test_a_machine_is_not_judged_by_a_recording(good: ProberProcess) -> None:
    there, soon = RemoteProber(good.socket, SystemClock(), live=True), SystemClock().mono() + 10
    told = "the prober works on a recording, and its caller on a machine"
    for engine in ("auto", "nccl"):
        looked = there.facts(engine, soon)
        assert not isinstance(looked, Refusal)
        assert looked.refusal == Refusal(SkipReason.PROBER_AWAY, told)
    came = there.run(ProbeRequest(QUICK, "command"), soon)
    assert isinstance(came, ProbeAnswer)
    assert (came.refusal, came.probed) == (Refusal(SkipReason.PROBER_AWAY, told), None)
    # The gloo engine touches neither.
    looked = there.facts("gloo", soon)
    assert not isinstance(looked, Refusal)
    assert looked.refusal is None


def test_where_it_cannot_listen_it_says_so_in_one_line(tmp_path: Path) -> None:
    for arguments in (
        ("--socket", str(tmp_path / ("no" * 100))),
        ("--socket", str(tmp_path / "x"), "--group", "nobody-here"),
    ):
        done = run_wirewatch("prober", *arguments)
        assert done.returncode == CONFIG
        (line,) = done.stderr.splitlines()
        assert line.startswith("wirewatch: cannot listen on ")


def test_a_second_prober_is_refused(good: ProberProcess) -> None:
    done = run_wirewatch("prober", "--replay", DEMO, "--socket", good.socket)
    assert (done.returncode, "answers there" in done.stderr) == (CONFIG, True)
    assert not isinstance(attempt(good), LostOrder)
