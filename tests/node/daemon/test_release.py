"""The daemon gets out of the way and comes back, as a process: `wirewatch release` on a replay."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from proof.hardware.processes import children
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import CONFIG, USAGE, refused
from tests.node.daemon.process import FAST, Daemon, every_finding
from tests.node.hw.children import is_dead, until
from tests.node.hw.recordings import one_change, overlay_file
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from wirewatch.client import NoAnswer, request
from wirewatch.hw.nvml.client import GRACE

NO_ANSWER = 69
NOBODY = 65534
WITHIN = BACK = HANGS
"""Seconds in which handles are closed, two on an idle machine, and until all is back."""
REPLAY = ("--replay", "h200x8")
Series = set[tuple[str, frozenset[tuple[str, str]]]]


def config(folder: Path) -> str:
    return FAST.replace('socket = ""', f'socket = "{folder}/run/wirewatch.sock"')


def daemon(folder: Path, *extra: str) -> Daemon:
    return Daemon((*REPLAY, *extra), folder, config(folder))


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = run_wirewatch("release", "--socket", f"{folder}/run/wirewatch.sock", *arguments)
    return done.returncode, done.stdout, done.stderr


def order(folder: Path, *arguments: str) -> dict[str, Any]:
    """The document of an order that was followed, which is as its schema says."""
    status, out, told = command(folder, "--json", *arguments)
    assert (status, told) == (0, "")
    assert complaints("wirewatch.release.1", out) == []
    document: dict[str, Any] = json.loads(out)
    return document


def of_gpus(running: Daemon) -> Series:
    """The series of GPUs; findings come and go, so they are left out."""
    found = running.get("/metrics").series()
    return {key for key in found if dict(key[1]).get("uuid") and not key[0].startswith("wirewatch_finding_")}


def settled(running: Daemon) -> Series:
    running.wait("/health", '"health":"ok"')
    return of_gpus(running)


def all_back(running: Daemon, before: Series) -> None:
    end = time.monotonic() + BACK
    while missing := before - of_gpus(running):
        assert time.monotonic() < end, f"{len(missing)} series are missing, such as {next(iter(missing))}"
        time.sleep(0.1)
    running.wait("/health", '"health":"ok"')


def test_no_process_is_left_metrics_go_on_and_all_is_back_when_it_is_ended(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        before = settled(running)
        (child,) = children(running.process.pid)
        document = order(tmp_path, "--for", "60s", "--by", "Ada\nof the\x1b[31m night")
        assert is_dead(child)
        assert (document["released"], document["stuck"]) == (True, [])
        assert document["seconds_taken"] < WITHIN
        assert 50 < document["until"] - time.time() <= 60

        blind = running.wait("/health", '"health":"unknown"').json()
        assert blind["released_until"] == document["until"]
        found = every_finding(blind)
        assert {f["rule"] for f in found} >= {"gpu.blind", "nvlink.blind"}
        assert {f["subject"].get("gpu", "") for f in found} == {""}
        assert all(document["why"] in f["evidence"] for f in found)
        time.sleep(1)
        assert children(running.process.pid) == []
        assert running.get("/metrics").status == running.get("/livez").status == 200
        assert not [key for key in of_gpus(running) if key[0] == "wirewatch_gpu_power_watts"]

        ended = order(tmp_path, "--end")
        assert (ended["released"], ended["until"]) == (False, 0)
        all_back(running, before)
        assert running.get("/health").json()["released_until"] == 0
        assert "(asked by Adaof the[31m night)" in running.log
        assert "every GPU handle is closed after" in running.log
        assert "GPUs are watched again: asked by" in running.log
        assert "Traceback" not in running.log


def test_it_comes_back_by_itself(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        before = settled(running)
        status, out, told = command(tmp_path, "--for", "1s")
        assert (status, told) == (0, "")
        assert out.startswith("released until ")
        assert "`wirewatch release --end` takes it back; every handle was closed in 0." in out
        until(lambda: "GPUs are watched again: the time is up" in running.log)
        all_back(running, before)
        assert order(tmp_path, "--end")["why"] == "nothing was released"


def test_a_second_order_takes_the_place_of_the_first(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        before = settled(running)
        first = order(tmp_path, "--for", "1s")
        second = order(tmp_path, "--for", "1h")
        assert second["until"] > first["until"] + 3000
        time.sleep(1.5)
        assert children(running.process.pid) == []
        assert running.get("/health").json()["released_until"] == second["until"]
        order(tmp_path, "--for", "0.5")
        until(lambda: "the time is up" in running.log)
        all_back(running, before)


def test_a_gpu_that_hangs_in_the_middle_of_a_question_holds_nothing_up_and_is_not_blamed(
    tmp_path: Path,
) -> None:
    overlay = one_change(tmp_path, "hang = true", "gpu5/*")
    with daemon(tmp_path, "--overlay", overlay) as running:
        until(lambda: len(children(running.process.pid)) == 1)
        (child,) = children(running.process.pid)
        time.sleep(1.5)
        document = order(tmp_path, "--for", "60s")
        assert is_dead(child)
        assert GRACE <= document["seconds_taken"] < WITHIN
        assert document["stuck"] == []
        overlay_file(tmp_path, "change = []")
        order(tmp_path, "--end")
        until(lambda: sum(key[0] == "wirewatch_gpu_power_watts" for key in of_gpus(running)) == 8)
        assert "left out for a while" not in running.log


def test_it_is_told_to_stop_while_it_is_released(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.ready()
        order(tmp_path)
        status, _ = running.terminate()
        assert status == 0
        assert "Traceback" not in running.log
    status, out, told = command(tmp_path)
    assert (status, out) == (NO_ANSWER, "")
    assert (
        told == f"wirewatch: {tmp_path}/run/control.sock: nothing listens there; the daemon is not running\n"
    )


def test_orders_are_taken_from_the_daemons_own_user_alone() -> None:
    with tempfile.TemporaryDirectory() as name, daemon(Path(name)) as running:
        folder = Path(name)
        running.ready()
        control, questions = folder / "run" / "control.sock", folder / "run" / "wirewatch.sock"
        assert [one.stat().st_mode & 0o777 for one in (control, questions)] == [0o600, 0o666]
        if os.geteuid():
            pytest.skip("only root can ask as somebody else")
        folder.chmod(0o755)
        os.seteuid(NOBODY)
        try:
            assert request(str(questions), "GET", "/livez", None, WITHIN)[0] == 200
            with pytest.raises(NoAnswer, match="not allowed; ask as the user that the daemon runs as"):
                request(str(control), "POST", "/release", b"{}", WITHIN)
        finally:
            os.seteuid(0)


def test_other_ways_in_take_no_orders_and_wrong_orders_are_refused(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.ready()
        control, questions = (f"{tmp_path}/run/{name}.sock" for name in ("control", "wirewatch"))
        assert request(questions, "POST", "/release", b"{}", WITHIN)[0] == 404
        for target in ("/metrics", "/health", "/openapi.json", "/release"):
            assert request(control, "GET", target, None, WITHIN)[0] in {404, 405}
        for body in (
            b"", b"[]", b"x", b'{"seconds": 0}', b'{"seconds": -1}', b'{"seconds": 86401}',
            b'{"seconds": "x"}', b'{"seconds": NaN}', b'{"seconds": 1e999}', b'{"minutes": 1}',
            b'{"by": "%s"}' % (b"x" * 201), b'{"by": "\xff"}', b"[" * 100_000,
        ):  # fmt: skip
            status, told = request(control, "POST", "/release", body, WITHIN)
            assert (status in {400, 413, 422}, type(json.loads(told)["detail"])) == (True, str), body
        assert request(control, "POST", "/resume", b'{"seconds": 1}', WITHIN)[0] == 422
        assert running.get("/health").json()["released_until"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--for", "0"), ("--for", "25h"), ("--for", "nan"), ("--for", "-1s"), ("--for", "x"),
        ("--end", "--for", "1s"), ("now",),
    ],
)  # fmt: skip
def test_wrong_usage_is_reported_before_anybody_is_asked(arguments: tuple[str, ...]) -> None:
    refused(USAGE, "release", *arguments)


def test_where_nobody_listens_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f'[listen]\nsocket = "{tmp_path}/none/wirewatch.sock"\n', "utf-8")
    assert "no such socket" in refused(NO_ANSWER, "release", "--config", str(file))
    file.write_text('[listen]\nsocket = ""\n', "utf-8")
    assert "it has no socket" in refused(NO_ANSWER, "release", "--config", str(file))
    file.write_text("[listen", "utf-8")
    refused(CONFIG, "release", "--config", str(file))


def test_something_else_that_answers_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "run" / "control.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        words = ("wirewatch", "release", "--socket", str(path))
        with Process(words, subprocess.PIPE, subprocess.PIPE) as asking:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            _, told = asking.communicate(timeout=HANGS)
    assert asking.returncode == NO_ANSWER
    assert told == f"wirewatch: {path}: the answer is not from this version of wirewatch\n"


def test_without_a_socket_there_is_none_for_orders_and_its_name_is_taken(tmp_path: Path) -> None:
    with Daemon(REPLAY, tmp_path) as running:
        running.ready()
        assert [p.name for p in tmp_path.iterdir() if p.is_socket()] == []
    file = tmp_path / "wirewatch.toml"
    file.write_text(f'[listen]\naddress = "127.0.0.1:0"\nsocket = "{tmp_path}/control.sock"\n', "utf-8")
    line = refused(CONFIG, "serve", *REPLAY, "--config", str(file))
    assert "this is the name of the socket for orders beside it" in line
