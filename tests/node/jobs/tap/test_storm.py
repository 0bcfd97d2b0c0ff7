"""Many threads at once, communicators that go under them, and a reader beside them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples import SHARE
from tests.node.jobs.tap.playing import built, environment
from tests.node.jobs.tap.ringbytes import RingBytes, read
from tests.patience import HANGS
from tests.waiting import until
from wirewatch.core.jobs import RingsReading
from wirewatch.jobs.tap.rings import FileRings

CHANNELS = 24
SECONDS = "0.7" if SHARE >= 0.1 else "0.3"
"""How long the threads play; longer before a release."""
LOST = 0.01
"""Most of all records that lack the time of a channel's stop: NCCL's thread waits for no other."""


def command(kind: str, what: str, seconds: str) -> list[str]:
    build = built(kind)
    # Some kernels place programs where ThreadSanitizer of this age cannot be.
    fixed = [shutil.which("setarch") or "", "-R"] if kind == "THREAD" and shutil.which("setarch") else []
    return [*fixed, str(build / "storm"), str(build / "tap.so"), what, seconds]


def storm(kind: str, what: str, folder: Path, seconds: str = SECONDS) -> dict[str, int]:
    """The numbers that it prints; sanitizers must have said nothing."""
    ran = subprocess.run(
        command(kind, what, seconds), capture_output=True, text=True, timeout=HANGS, check=False,
        env=environment(folder, WIREWATCH_TAP_ON_MS="1", WIREWATCH_TAP_PERIOD_MS="2"),
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return {name: int(value) for name, value in (line.split() for line in ran.stdout.splitlines())}


def last_stop(number: int) -> int:
    """When the last channel of the storm's collective of this number stops, in nanoseconds."""
    return number * 1000 + 500 + CHANNELS - 1


def whole(ring: RingBytes) -> None:
    """Every record has the times that the storm gives a collective of its number, and its place."""
    for record in ring.records:
        number = record.collective
        assert record.started == number * 1000
        assert 0 <= last_stop(number) - record.stopped <= CHANNELS - record.ended
        assert (record.longest, record.channels, record.elements) == (500, CHANNELS, 1000 + number % 1000)
    assert sum(record.ended < CHANNELS for record in ring.records) <= LOST * len(ring.records)
    numbers = sorted(record.sequence for record in ring.records)
    assert numbers == list(range(max(1, ring.written - 4095), ring.written + 1))


@pytest.mark.parametrize("kind", ["ADDRESS", "THREAD"])
def test_threads_and_forks(folder: Path, kind: str) -> None:
    said = storm(kind, "threads", folder)
    rings = [read(path) for path in folder.glob("*.ring")]
    assert len(rings) == 2
    assert said["rounds"] > 0
    for ring in rings:
        whole(ring)
        assert ring.enqueued == said[f"enqueued{ring.rank}"] > 100
        assert ring.written + ring.dropped <= ring.enqueued
        assert ring.written > 0.9 * ring.enqueued


@pytest.mark.parametrize("kind", ["ADDRESS", "THREAD"])
def test_communicators_go_while_their_channels_are_played(folder: Path, kind: str) -> None:
    """What the threads still play of one that is gone does not get into the one that has its place."""
    said = storm(kind, "churn", folder)
    assert said["rounds"] > 0
    rings = [read(path) for path in folder.glob("*.ring")]
    assert len(rings) == 2
    for ring in rings:
        whole(ring)
        born = ring.communicator >> 32
        assert said["rounds"] <= born + 2
        assert all(record.collective >> 32 >= born for record in ring.records)


def test_a_record_is_whole_after_every_single_store() -> None:
    """Three turns of the ring, looked at as by a reader that comes between two stores, whichever."""
    ran = subprocess.run([built() / "order"], capture_output=True, text=True, timeout=HANGS, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert int(ran.stdout) >= 3 * 4096 * 10


def test_a_reader_beside_it_sees_no_torn_record(folder: Path) -> None:
    rings, seen, lost, after = FileRings(folder), 0, 0, dict[str, int]()
    with subprocess.Popen(
        command("PLAIN", "threads", SECONDS),
        stdout=subprocess.DEVNULL,
        env=environment(folder, WIREWATCH_TAP_ON_MS="1", WIREWATCH_TAP_PERIOD_MS="1"),
    ) as process:
        until("its rings", lambda: len(list(folder.glob("*.ring"))) == 2, every=0.01)
        while process.poll() is None:
            reading = rings.poll(after)
            assert isinstance(reading, RingsReading)
            for ring in reading.rings:
                after[ring.ring.name] = ring.last
                assert ring.implausible == 0
                for call in ring.calls:
                    assert call.started is not None
                    assert call.stopped is not None
                    assert round(call.started * 1e9) == call.sequence * 1000
                    early = last_stop(call.sequence) - round(call.stopped * 1e9)
                    assert 0 <= early < CHANNELS
                    lost += early > 0
                    assert (round(call.seconds * 1e9), call.channels) == (500, CHANNELS)
                    assert call.size_bytes == 4 * (1000 + call.sequence % 1000)
                seen += len(ring.calls)
    rings.close()
    assert process.returncode == 0
    assert seen > 1000
    assert lost <= LOST * seen
