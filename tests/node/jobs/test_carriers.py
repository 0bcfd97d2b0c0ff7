"""Who maps the tap, by /proc."""

import os
import subprocess
import sys
from pathlib import Path

from tests.disks import OTHER, open_folder
from tests.node.jobs.taplibraries import library, place
from wirewatch.jobs.tap.carriers import CarrierStatus, carriers
from wirewatch.jobs.tap.tapfile import LIBRARY

JOB = (
    "import mmap, sys, time\nfile = open(sys.argv[1], 'rb')\n"
    "mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)\n"
    "print('up', flush=True)\ntime.sleep(600)"
)


def process(proc: Path, pid: int, maps: str | None) -> None:
    (proc / str(pid)).mkdir(parents=True)
    if maps is not None:
        (proc / str(pid) / "maps").write_text(maps)


def line(path: str, rights: str = "r-xp") -> str:
    return f"7f1 {rights} 00001000 00:1a 777                         {path}\n"


def test_a_process_that_maps_it_is_found_and_one_that_only_names_it_is_not(tmp_path: Path) -> None:
    process(tmp_path, 30, line("/usr/lib/libc.so.6") + line(f"/opt/a b/{LIBRARY}"))
    process(tmp_path, 4, line(f"/x/{LIBRARY} (deleted)"))
    process(tmp_path, 5, line(f"/x/{LIBRARY}.old"))
    process(tmp_path, 6, line(f"/x/{LIBRARY}", "r--p"))
    process(tmp_path, 7, None)
    process(tmp_path, 8, "")
    (tmp_path / "version").touch()
    found = carriers(tmp_path)
    uid = os.geteuid()
    assert found.found == [
        CarrierStatus(4, uid, f"/x/{LIBRARY}", replaced=True),
        CarrierStatus(30, uid, f"/opt/a b/{LIBRARY}", replaced=False),
    ]
    assert (found.closed, found.late) == (0, False)


def test_a_real_process_is_found_and_known_to_have_an_old_one_after_a_change(tmp_path: Path) -> None:
    folder = place(tmp_path / "opt", library())
    path = folder / LIBRARY
    with subprocess.Popen([sys.executable, "-c", JOB, str(path)], stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()
            assert CarrierStatus(job.pid, os.geteuid(), str(path), replaced=False) in carriers().found
            path.unlink()
            assert CarrierStatus(job.pid, os.geteuid(), str(path), replaced=True) in carriers().found
        finally:
            job.kill()


def test_a_process_that_keeps_the_reader_waiting_ends_the_search(tmp_path: Path) -> None:
    process(tmp_path, 4, line(f"/x/{LIBRARY}"))
    process(tmp_path, 5, None)
    os.mkfifo(tmp_path / "5/maps")
    found = carriers(tmp_path, patience=0.5)
    assert ([one.pid for one in found.found], found.late) == ([4], True)
    # Lets the reader go on to its end.
    (tmp_path / "5/maps").write_text("")


def test_processes_that_are_closed_to_us_are_counted() -> None:
    """Root may look into every process, so that it asks as another user."""
    user = os.geteuid()
    with open_folder() as proc:
        process(proc, 4, "")
        (proc / "4/maps").chmod(0)
        try:
            if user == 0:
                os.seteuid(OTHER)
            assert carriers(proc).closed == 1
        finally:
            os.seteuid(user)
