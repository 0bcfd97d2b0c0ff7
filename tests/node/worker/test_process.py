"""Ranks by fork, and processes that end with the one that started them: each in processes of its own."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.groups import dies as gone
from tests.patience import HANGS

FOLLOWS = """
import ctypes, os, sys, time
from wirewatch.worker import process
process.WATCH = 0.05
process.follow(int(sys.argv[1]), lambda: os._exit(7))
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
os.write(1, b"%d" % number.value)
time.sleep(float(sys.argv[2]))
"""
FORKED = """
import os, sys, time
from wirewatch.worker.process import fork_ranks, part
sys.stdout.write("said before ")
sys.stderr.write("complained before ")
rank = fork_ranks(4)
sys.stdout.flush()
sys.stderr.flush()
os.write(1, b"%d\\n" % rank)
if sys.argv[1] == "ends":
    if rank == 0:
        part()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os.write(1, b"alone\\n")
    os._exit(0)
time.sleep(60)
"""
LOST = """
import os, signal, sys, time
from wirewatch.worker import process
process.NOTICE = 0.1
rank = process.fork_ranks(3)
if rank == 1:
    os._exit(0)
if rank == 2:
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == "killed" else os._exit(int(sys.argv[1]))
def lost(said):
    os.write(1, said.encode())
    os._exit(0)
process.watch_ranks(lost)
process.part()
os.write(1, b"all ended well")
"""
ALONE = """
import os
from wirewatch.worker import process
def refused(*_):
    raise RuntimeError("no thread can be started")
process.follow = refused
rank = process.fork_ranks(2)
if rank == 0:
    os.write(1, b"%d" % os.waitstatus_to_exitcode(os.wait()[1]))
"""
NOTICED = """
import os, sys, time
from pathlib import Path
from wirewatch.worker import process
process.NOTICE = 60.0
if process.fork_ranks(2) == 1:
    os._exit(1)
children = Path(f"/proc/self/task/{os.getpid()}/children")
process.watch_ranks(lambda said: (os.write(1, said.encode()), os._exit(0)))
while children.read_text():
    time.sleep(0.01)
time.sleep(0.1)
os.write(1, b"the engine noticed it")
os._exit(0)
"""


def said(script: str, *words: str) -> str:
    """What a script prints; a script that fails is an error."""
    return subprocess.run(
        [sys.executable, "-c", script, *words], check=True, stdout=subprocess.PIPE, timeout=HANGS, text=True
    ).stdout


def test_a_process_whose_parent_is_gone_from_the_start_sees_it_itself() -> None:
    stranger = [sys.executable, "-c", FOLLOWS, str(1 << 22), "10"]
    assert subprocess.run(stranger, check=False, timeout=HANGS).returncode == 7


def test_a_process_whose_parent_lives_goes_on_and_the_kernel_kills_it_with_its_parent() -> None:
    """It outlives some looks at its parent."""
    assert said(FOLLOWS, str(os.getpid()), "0.2") == str(int(signal.SIGKILL))


def test_ranks_are_one_process_each_and_all_have_ended_after_the_parting() -> None:
    """Nothing that was said before is said again by a rank."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", FORKED, "ends"]
    told = subprocess.run(command, check=True, capture_output=True, timeout=HANGS, env=buffered)
    first, *ranks, last = told.stdout.split(b"\n")[:-1]
    assert sorted((first.removeprefix(b"said before "), *ranks)) == [b"0", b"1", b"2", b"3"]
    assert (last, told.stdout.count(b"said"), told.stderr) == (b"alone", 1, b"complained before ")


@pytest.mark.parametrize(
    ("how", "text"),
    [("killed", r"the process of a rank, \d+, ended by SIGKILL"), ("0", "all ended well"),
     ("1", r"the process of a rank, \d+, ended with status 1")],
)  # fmt: skip
def test_the_loss_of_a_rank_is_said_and_the_end_of_one_is_not(how: str, text: str) -> None:
    script = LOST if how == "0" else LOST.replace("process.part()", "time.sleep(10)")
    assert re.fullmatch(text, said(script, how))


def test_an_engine_has_time_to_notice_the_loss_of_a_rank_itself() -> None:
    assert said(NOTICED) == "the engine noticed it"


def test_a_rank_that_could_outlive_its_leader_takes_no_part() -> None:
    assert said(ALONE) == "1"


def test_ranks_die_with_the_one_that_leads() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKED, "stay"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        told = b"".join(leader.stdout.readline() for _ in range(4)).removeprefix(b"said before ")
        assert sorted(told.split()) == [b"0", b"1", b"2", b"3"]
        leader.kill()
        leader.wait()
        assert gone(leader.pid)


def test_a_worker_whose_parent_ended_before_it_began_ends_too() -> None:
    """It is the child of another process by then, which waits for no document."""
    ended = subprocess.Popen(["true"])
    ended.wait(HANGS)
    command = [sys.executable, "-m", "wirewatch.worker", "1", "2", str(ended.pid)]
    # A plan never comes: without the rule it would wait for that.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as worker:
        assert worker.wait(HANGS) == -signal.SIGKILL
