"""The tap itself, compiled and installed as on a node, and the agent's reader on what it writes."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.system.tapjob import COMMUNICATOR, SIZE, STEP
from wirewatch.core.jobs import RingReading, RingsReading, RingState
from wirewatch.jobs.tap.carriers import carriers
from wirewatch.jobs.tap.ringfile import RECORDS
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.jobs.tap.tapfile import LINK, described, install

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("tap"), "cc").path


@pytest.fixture
def folder() -> Iterator[Path]:
    """The tap writes to tmpfs only."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@contextmanager
def job(library: Path, folder: Path, count: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tests.system.tapjob", str(library), str(count)]
    environment = {**os.environ, "WIREWATCH_TAP_DIR": str(folder)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def read(port: FileRings) -> RingReading:
    found = port.poll({})
    assert isinstance(found, RingsReading)
    assert found.refused == ()
    (one,) = found.rings
    return one


def test_what_the_installer_compiles_is_what_make_compiles(library: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (flags,) = re.findall(r"^TAP_LDFLAGS := (.*)$", makefile, re.MULTILINE)
    assert flags.split() == list(LINK)
    assert isinstance(described(library), str)


def test_the_reader_finds_what_a_job_did(library: Path, folder: Path) -> None:
    with job(library, folder, 20) as process, closing(FileRings(folder)) as port:
        one = read(port)
        ring = one.ring
        assert (ring.communicator, ring.rank, ring.ranks, ring.nodes) == (COMMUNICATOR, 1, 2, 1)
        assert (ring.state, ring.pid, ring.host_pid) == (RingState.LIVE, process.pid, process.pid)
        assert (ring.comm_name, ring.interface, ring.uid) == ("tensor", 5, os.geteuid())
        assert ring.counts.calls == {"all_gather": 20}
        assert ring.counts.bytes == {"all_gather": 20 * SIZE * 2 * 2}
        assert [call.sequence for call in one.calls] == list(range(20))
        assert {
            (call.op, call.dtype, call.size_bytes, call.algorithm, call.protocol) for call in one.calls
        } == {("all_gather", "bfloat16", SIZE * 2 * 2, "RING", "SIMPLE")}
        assert [round(call.seconds * 1e9) for call in one.calls] == [(n + 1) * STEP for n in range(20)]
        assert [carrier.pid for carrier in carriers().found if carrier.path == str(library)] == [process.pid]


def test_a_tap_writes_into_the_folder_of_its_job_and_is_read_as_that_jobs(
    library: Path, folder: Path
) -> None:
    own = folder / "slurm" / "4711"
    own.mkdir(parents=True)
    with job(library, own, 5) as process, closing(FileRings(folder)) as port:
        one = read(port)
        assert (one.ring.owner, one.ring.host_pid, len(one.calls)) == ("slurm:4711", process.pid, 5)
        process.communicate(b"\n", timeout=60)
        assert list(own.iterdir()) == [], "the tap removes its ring"


def test_the_last_counts_of_a_job_that_ends_well_are_read(library: Path, folder: Path) -> None:
    with job(library, folder, 3) as process, closing(FileRings(folder)) as port:
        last = read(port).last
        process.communicate(b"\n", timeout=60)
        assert list(folder.iterdir()) == [], "the tap removes its ring"
        found = port.poll({})
        assert isinstance(found, RingsReading)
        (one,) = found.rings
        assert (one.ring.state, one.ring.counts.written, last) == (RingState.FINALIZED, 3, 3)


def test_a_job_that_is_killed_leaves_a_dead_ring_and_an_older_turn_is_missed(
    library: Path, folder: Path
) -> None:
    with job(library, folder, RECORDS + 7) as process, closing(FileRings(folder)) as port:
        process.kill()
        process.wait()
        one = read(port)
        assert one.ring.state is RingState.DEAD
        assert (len(one.calls), one.missed, one.last) == (RECORDS, 7, RECORDS + 7)
