"""The web hook, over HTTP."""

import json
import threading
from typing import Any
from urllib.request import Request, urlopen

import pytest

from proof.rehearsal.receiver import Receiver, notices
from tests.patience import HANGS
from tests.rows import each


def body(status: str = "firing", node: str = "n", version: str = "4") -> bytes:
    alert: dict[str, Any] = {
        "status": status, "labels": {"alertname": "A", "node": node}, "annotations": {"summary": "s"},
    }  # fmt: skip
    said = {"version": version, "receiver": "page", "groupLabels": {"node": node}, "alerts": [alert]}
    return json.dumps(said).encode()


def test_what_is_sent_is_kept_with_its_time() -> None:
    with Receiver() as receiver:
        later = threading.Timer(0.05, lambda: urlopen(Request(receiver.url, body()), timeout=HANGS).close())
        later.start()
        assert receiver.wait("n", bool, 20.0)
        later.join()
        (kept,) = receiver.of("n")
        assert (kept.name, kept.firing, kept.receiver) == ("A", True, "page")
        assert receiver.of("other") == []
        assert not receiver.wait("other", bool, 0.01)
        assert receiver.every() == (kept,)
        assert receiver.troubles == []


@each("wrong", [b"", b"{}", b"[]", body(version="5"), body(status="maybe")])
def test_what_is_no_notification_is_a_trouble_and_no_silence(wrong: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        notices(wrong, 0.0)
    receiver = Receiver()
    with receiver:
        receiver.take(wrong, 0.0)
    assert len(receiver.troubles) == 1
    assert receiver.every() == ()
