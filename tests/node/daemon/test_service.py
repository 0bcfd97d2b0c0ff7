"""The daemon in this process: its servers, its orders, a configuration that is read again, and its end."""

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.daemon.test_schedule import collector
from tests.node.hw.children import until
from tests.patience import HANGS
from wirewatch.cli.hardware import replayed
from wirewatch.client import request
from wirewatch.core.types import Expect, Finding, Health, Subject
from wirewatch.daemon import persistence, service
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.persistence import read_ledger, write
from wirewatch.daemon.release import Handles
from wirewatch.daemon.service import Remembered, Reread, Sockets, serve
from wirewatch.hw.host import SystemClock
from wirewatch.server.sockets import local, tcp
from wirewatch.signals import SIGNALS
from wirewatch.verdict.drift.baseline import NOT_POLLED
from wirewatch.verdict.ledger import VerdictPolicy

ACK = b'{"order": "ack", "by": "ann", "why": "replaced"}'
GONE = Finding("xid.79", Health.FAILED, Subject("0"), "it is gone", "look for it")


def test_a_daemon_answers_takes_orders_is_changed_and_writes_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(
        collector("one", "files", lambda _: 1),
        judge=lambda memory, _ok, _policy, _expect: (memory + 1, () if memory else (GONE,)),
    )
    two = collector("two", "files", lambda _: 1)
    hardware, nvml = replayed("h200x8", (), loop=False)
    topologies = TopologyOrders(BaselineStore(None, SystemClock()), SystemClock())
    questions, orders, ledger = (str(tmp_path / name) for name in ("q.sock", "o.sock", "latches.json"))
    disk, wrong = threading.Event(), list[BaseException]()

    def late(path: Path, text: bytes, mode: int | None = None) -> str:
        disk.wait(HANGS)
        return write(path, text, mode)

    def asked(target: str) -> Any:
        return json.loads(request(questions, "GET", target, None, HANGS)[1])

    def polled() -> set[str]:
        return {name["collector"] for name in asked("/api/v1/state")["collectors"] if name["last_success"]}

    def operate() -> None:
        until(lambda: polled() == {"one"})
        assert (topologies.node() is not None, topologies.troubles()) == (True, ("xid.79",))
        assert topologies.troubles() != (NOT_POLLED,)
        assert b"nothing was released" in request(orders, "POST", "/resume", b"{}", HANGS)[1]
        (latched,) = asked("/api/v1/findings")["findings"]
        until(lambda: request(orders, "POST", f"/findings/{latched['id']}", ACK, HANGS)[0] == 200)
        vars(SIGNALS)["_reload"]()
        until(lambda: polled() == {"two"})

    def operator() -> None:
        try:
            operate()
        except BaseException as error:  # noqa: BLE001 - said by the test itself
            wrong.append(error)
        vars(SIGNALS)["_stop"]("SIGTERM")
        # The disk answers a moment after the daemon was ended.
        time.sleep(0.1)
        disk.set()

    monkeypatch.setattr(persistence, "write", late)
    monkeypatch.setattr(service, "LAST_WRITE", HANGS)
    thread = threading.Thread(target=operator)
    with tcp("127.0.0.1", 0) as port, local(questions) as asking, local(orders, 0o600) as ordering:
        daemon = serve(
            [one], hardware, Expect(), Sockets(port, questions=asking, orders=ordering), Handles(nvml),
            topologies, Remembered(path=Path(ledger)),
            reread=lambda: Reread((two,), Expect(), VerdictPolicy()),
        )  # fmt: skip
        thread.start()
        asyncio.run(asyncio.wait_for(daemon, 3 * HANGS))
        entries = read_ledger(Path(ledger), "", 0.0).entries.values()
    thread.join()
    nvml.close()
    assert wrong == []
    assert [entry.rule for entry in entries] == ["xid.79"]
