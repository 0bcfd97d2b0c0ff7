"""What goes wrong between agent and API server is waited for, told and counted, and harms nobody."""

import asyncio
import logging
import os
import socket
import time
from pathlib import Path

import pytest

from tests.node.daemon.conditionrig import Rig, played, rig
from tests.node.kubernetes.apiserver import (
    NODE,
    ApiServer,
    Day,
    certify,
    refusing,
    replying,
    silent,
    trickling,
)
from tests.node.kubernetes.views import FAILED, OK
from tests.patience import HANGS
from tests.support import EPOCH
from wirewatch.core.words import stamp
from wirewatch.daemon import nodecondition
from wirewatch.kubernetes.apiserver import LIMIT, RequestResult

BAD: dict[str, tuple[Day, str]] = {
    "401": (refusing(401, "Unauthorized"), "unauthorized"),
    "403": (refusing(403, 'cannot patch resource "nodes/status"'), "forbidden"),
    "404": (refusing(404, "not found"), "not_found"),
    "409": (refusing(409, "the object has been modified"), "conflict"),
    "422": (refusing(422, "invalid"), "rejected"),
    "429": (refusing(429, "too many requests", Retry_After="1"), "throttled"),
    "500": (refusing(500, "etcdserver: leader changed"), "server_error"),
    "503": (refusing(503, "not ready"), "server_error"),
    "redirect": (refusing(307, "", Location="https://127.0.0.1:1/"), "strange"),
    "another protocol": (replying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "strange"),
    "no node": (replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "strange"),
    "half an answer": (replying(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "strange"),
    "nothing": (replying(b""), "unreachable"),
    "too much": (
        replying(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (LIMIT + 1)), "strange",
    ),
    "endless headers": (replying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 90_000), "strange"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_whatever_is_answered_is_counted_told_once_and_tried_again(
    api: ApiServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    day, result = BAD[name]
    api.days = [day] * 3
    caplog.set_level(logging.INFO, nodecondition.__name__)
    told = played(api, lambda it: it.go(OK, 400))
    assert told.counted() == {"ok": len(api.requests) - 3, result: 3}
    assert api.condition()["status"] == "True"
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert NODE in warned[0]
    assert "first" not in warned[0]
    assert "the API server accepts it again" in caplog.text


def test_a_lack_of_rights_names_what_the_role_needs(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.always = refusing(
        403, 'User "system:serviceaccount:gpu:wirewatch" cannot patch resource "nodes/status"'
    )
    told = played(api, lambda it: it.go(OK, 3600))
    (warned,) = [record.getMessage() for record in caplog.records]
    assert "may not `patch` `nodes/status`" in warned
    assert "system:serviceaccount:gpu:wirewatch" in warned
    # Five minutes apart in the end: somebody must change the role.
    assert 15 < told.counted()["forbidden"] < 30
    assert set(told.counted()) == {"forbidden"}


def test_a_server_that_asks_for_patience_gets_it(api: ApiServer) -> None:
    api.days = [refusing(429, "busy", Retry_After="120")]

    async def story(it: Rig) -> None:
        await it.go(OK, 120)
        assert len(api.requests) == 1
        await it.go(OK, 30)
        assert len(api.requests) == 3

    played(api, story)


@pytest.mark.parametrize("day", [silent, trickling])
def test_a_request_ends_by_its_deadline_whatever_hangs(api: ApiServer, day: Day) -> None:
    api.always = day
    began = time.monotonic()
    told = played(api, lambda it: it.go(OK, 10), deadline=0.5)
    assert told.counted() == {"unreachable": 1}
    assert 0.4 < time.monotonic() - began < HANGS


def test_a_token_that_was_rotated_is_read_again(api: ApiServer) -> None:
    async def story(it: Rig) -> None:
        await it.go(OK, 100)
        api.token = "second"  # noqa: S105
        await it.go(OK, 300)
        assert it.counted()["unauthorized"] >= 1
        api.give("third")
        await it.go(OK, 300)

    told = played(api, story)
    assert (api.requests[-1].token, told.writer.report.updates[RequestResult.OK] > 1) == ("third", True)
    assert api.requests[-1].status == 200


def test_a_server_that_is_away_for_some_minutes_loses_nothing_and_is_not_hammered(tmp_path: Path) -> None:
    folder = tmp_path / "account"
    with ApiServer(folder) as api:
        port = api.port

        async def story() -> tuple[Rig, int]:
            it = rig(api)
            await it.go(OK, 100)
            api.__exit__()
            await it.go(OK, 60)
            await it.go(FAILED, 240)
            tries = it.counted()["unreachable"]
            back = ApiServer(folder, nodes=api.nodes, port=port)
            with back:
                await it.go(FAILED, 70)
            return it, tries

        it, tries = asyncio.run(story())
        api.__enter__()
    # The fault came and was held while nobody listened; it is told with its own time.
    mine = api.condition()
    assert (mine["status"], mine["lastTransitionTime"]) == ("False", stamp(EPOCH + 220))
    assert 3 <= tries <= 10
    assert it.counted()["unreachable"] == tries


def test_a_certificate_of_a_stranger_is_not_trusted_with_the_token(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certify(other, of="strangers")
    (api.folder / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    told = played(api, lambda it: it.go(OK, 30))
    assert set(told.counted()) == {"unreachable"}
    assert api.requests == []
    assert "unable to get local issuer certificate" in caplog.text or "signature" in caplog.text


@pytest.mark.parametrize(("days", "host"), [(-1, "127.0.0.1"), (1, "127.0.0.9")])
def test_a_certificate_that_is_over_or_of_another_name_is_not_trusted(
    tmp_path: Path, days: int, host: str
) -> None:
    folder = tmp_path / "account"
    folder.mkdir()
    certify(folder, days=days, host=host)
    with ApiServer(folder) as api:
        told = played(api, lambda it: it.go(OK, 15))
    assert told.counted() == {"unreachable": 2}
    assert api.requests == []


def test_a_name_is_looked_up_and_the_certificate_is_for_that_name(api: ApiServer) -> None:
    told = played(api, lambda it: it.go(OK, 70), host="localhost")
    assert told.counted() == {"ok": 2}


@pytest.mark.parametrize("spoil", ["token", "ca.crt", "empty", "lines"])
def test_files_that_are_not_there_are_reported_and_read_again(api: ApiServer, spoil: str) -> None:
    def break_it() -> None:
        if spoil in {"token", "ca.crt"}:
            (api.folder / spoil).rename(api.folder / "away")
        else:
            (api.folder / "token").write_text({"empty": "", "lines": "a\nb"}[spoil], "utf-8")

    def repair() -> None:
        if (api.folder / "away").exists():
            (api.folder / "away").rename(api.folder / spoil)
        api.give()

    async def story(it: Rig) -> None:
        break_it()
        await it.go(OK, 60)
        assert set(it.counted()) == {"no_credentials"}
        repair()
        await it.go(OK, 120)

    played(api, story)
    assert api.condition()["status"] == "True"


def test_files_on_a_disk_that_hangs_hold_up_nobody(api: ApiServer) -> None:
    (api.folder / "token").unlink()
    os.mkfifo(api.folder / "token")

    async def story(it: Rig) -> None:
        began = time.monotonic()
        await it.go(OK, 60)
        assert time.monotonic() - began < HANGS
        # Only the first one waited: who still reads is not asked twice.
        assert it.counted() == {"unreachable": 1, "no_credentials": 4}
        with (api.folder / "token").open("w") as pipe:
            pipe.write("first")
        (api.folder / "token").unlink()
        api.give()
        await asyncio.sleep(0.1)
        await it.go(OK, 600)

    played(api, story, deadline=1.0)
    assert api.condition()["status"] == "True"


def test_a_node_of_another_name_is_not_there(api: ApiServer) -> None:
    assert played(api, lambda it: it.go(OK, 15), node="gpu-018").counted() == {"not_found": 2}


def test_nobody_listens_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        folder = tmp_path / "account"
        folder.mkdir()
        certify(folder)
        api = ApiServer(folder, port=taken.getsockname()[1])
        api.give()
        assert set(played(api, lambda it: it.go(OK, 30)).counted()) == {"unreachable"}
