"""Programs of other people: real ones, named ibstat, in a folder of our own."""

import errno
import io
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import HANGS
from tests.waiting import until
from wirewatch.core.ports import Output
from wirewatch.core.types import Absent, Why
from wirewatch.hw.command import ALLOWED, KILL_WAIT, LIMIT, SEARCH, RunningProgram, SystemCommand

Install = Callable[..., SystemCommand]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """A shell script as ibstat, and what finds it there and nowhere else."""

    def made(script: str, deadline: float = 20.0, head: str = "#!/bin/sh\n") -> SystemCommand:
        file = tmp_path / "ibstat"
        file.write_text(head + script, "utf-8")
        file.chmod(0o755)
        return SystemCommand(str(tmp_path), deadline)

    return made


def output(command: SystemCommand) -> Output:
    told = command.run("ibstat")
    assert isinstance(told, Output)
    return told


def absent(command: SystemCommand, name: str = "ibstat") -> Absent:
    told = command.run(name)
    assert isinstance(told, Absent)
    return told


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def gone(pid: int) -> bool:
    """Whether a process ends, waited for or not, within two seconds."""
    end = time.monotonic() + HANGS
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_what_a_program_prints_is_reported_with_its_status(install: Install) -> None:
    assert output(install("printf 'CA one\\n'; printf 'warned\\n' >&2")) == Output(0, "CA one\n", "warned\n")


def test_a_program_that_prints_nothing_is_an_output(install: Install) -> None:
    assert output(install("exit 0")) == Output(0, "", "")


def test_a_program_that_fails_keeps_what_it_had_printed(install: Install) -> None:
    """As ibstat does when one of many devices fails."""
    told = output(install("echo \"CA 'mlx5_0'\"; echo 'ibpanic: [7] main: stat failed' >&2; exit 255"))
    assert told == Output(255, "CA 'mlx5_0'\n", "ibpanic: [7] main: stat failed\n")


def test_a_program_that_a_signal_ended_says_which(install: Install) -> None:
    assert output(install("kill -SEGV $$")).status == -signal.SIGSEGV


def test_a_program_may_be_run_again_and_again(install: Install) -> None:
    command = install("echo once")
    assert [output(command).out for _ in range(3)] == ["once\n"] * 3


def test_a_program_gets_no_arguments_and_no_input(install: Install) -> None:
    assert output(install('echo "$#"; /bin/cat')).out == "0\n"


def test_a_program_sees_the_c_locale_where_to_search_and_none_of_our_secrets(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WIREWATCH_TEST_SECRET", "hunter2")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LD_PRELOAD", "")
    told = output(install("/usr/bin/env"))
    names = dict(line.partition("=")[::2] for line in told.out.splitlines())
    assert names["LC_ALL"] == "C"
    assert names["PATH"] == str(tmp_path)
    assert "hunter2" not in told.out
    assert set(names) <= {"LC_ALL", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}


def test_a_program_that_hangs_is_killed_at_its_deadline(install: Install, tmp_path: Path) -> None:
    command = install('echo "$$" > "$0.pid"; echo "CA one"; exec /bin/sleep 60', deadline=1.0)
    began = time.monotonic()
    told = absent(command)
    assert told.why is Why.TIMEOUT
    assert "1 s" in told.detail
    assert time.monotonic() - began < HANGS
    assert gone(_pid(tmp_path))


def _pid(folder: Path) -> int:
    """Of the script that the fixture put there, or of what that started."""
    return int((folder / "ibstat.pid").read_text("ascii"))


def test_after_a_program_that_hung_the_next_one_is_run(install: Install) -> None:
    command = install('[ -e "$0.once" ] || { : > "$0.once"; exec /bin/sleep 60; }; echo fine', deadline=1.0)
    assert absent(command).why is Why.TIMEOUT
    assert output(command) == Output(0, "fine\n", "")


def test_a_program_that_ignores_signals_is_killed_too(install: Install, tmp_path: Path) -> None:
    command = install('trap "" TERM INT HUP; echo "$$" > "$0.pid"; while :; do :; done', deadline=1.0)
    assert absent(command).why is Why.TIMEOUT
    assert gone(_pid(tmp_path))


def test_what_a_program_that_hangs_had_started_is_killed_with_it(install: Install, tmp_path: Path) -> None:
    """As where ibstat is a script that calls the real one, and that hangs in a driver."""
    command = install('/bin/sleep 60 & echo "$!" > "$0.pid"; wait', deadline=1.0)
    before = open_files()
    try:
        assert absent(command).why is Why.TIMEOUT
        assert gone(_pid(tmp_path))
        assert open_files() == before
    finally:
        with suppress(ProcessLookupError):
            os.kill(_pid(tmp_path), signal.SIGKILL)


def test_a_program_that_is_not_installed_is_missing(tmp_path: Path) -> None:
    told = absent(SystemCommand(str(tmp_path)))
    assert told.why is Why.MISSING
    assert "ibstat" in told.detail


def test_a_file_that_may_not_be_executed_is_not_installed(install: Install, tmp_path: Path) -> None:
    command = install("echo no")
    (tmp_path / "ibstat").chmod(0o644)
    assert absent(command).why is Why.MISSING


@pytest.mark.parametrize("name", ["sh", "ibstatus", "", "/bin/sh", "../ibstat", "ibstat -l"])
def test_a_name_that_is_not_on_the_list_is_never_run(tmp_path: Path, name: str) -> None:
    told = absent(SystemCommand(f"{tmp_path}:/usr/bin:/bin"), name)
    assert told.why is Why.UNSUPPORTED


def test_the_list_holds_names_and_no_paths_and_the_search_only_whole_paths() -> None:
    assert all(command[0] == name and "/" not in name for name, command in ALLOWED.items())
    assert all(folder.startswith("/") for folder in SEARCH.split(":"))


def test_output_that_is_no_text_is_read_all_the_same(install: Install) -> None:
    told = output(install("printf 'CA \\377\\n'; printf '\\376' >&2"))
    assert told == Output(0, "CA \N{REPLACEMENT CHARACTER}\n", "\N{REPLACEMENT CHARACTER}")


def test_output_without_end_is_cut(install: Install) -> None:
    told = output(install(f"/usr/bin/head -c {3 * LIMIT} /dev/zero | /usr/bin/tr '\\000' x"))
    assert told.out == "x" * LIMIT


@pytest.mark.parametrize(
    ("head", "code"), [("\x7fELF nonsense", errno.ENOEXEC), ("#!/no/such/shell\n", errno.ENOENT)]
)
def test_a_file_that_the_kernel_cannot_run_is_an_answer(install: Install, head: str, code: int) -> None:
    told = absent(install("echo no", head=head))
    assert told.code == code
    assert "ibstat" in told.detail


def test_a_program_is_found_in_the_first_folder_that_has_it(tmp_path: Path, install: Install) -> None:
    install("echo second")
    first = tmp_path / "first"
    first.mkdir()
    (first / "ibstat").write_text("#!/bin/sh\necho first", "utf-8")
    (first / "ibstat").chmod(0o755)
    assert output(SystemCommand(f"{first}:{tmp_path}")).out == "first\n"


class Hung:
    """Stands for a program that hangs in a driver: `pid` names the group that is left of it."""

    def __init__(self, pid: int = 1 << 22) -> None:
        self.pid = pid
        self.code: int | None = None
        self.stdout, self.stderr = io.BytesIO(), None

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        raise subprocess.TimeoutExpired("ibstat", timeout)

    def poll(self) -> int | None:
        return self.code


def test_after_a_program_that_cannot_be_killed_none_is_started_until_it_is_gone(install: Install) -> None:
    command, hung = install("echo fine"), Hung()
    command._programs._kill(hung)  # type: ignore[arg-type] # noqa: SLF001
    assert hung.stdout.closed
    assert absent(command).detail == "an earlier ibstat was killed and does not die; not starting another"
    hung.code = -signal.SIGKILL
    assert output(command).out == "fine\n"


def test_what_a_killed_program_had_started_counts_as_the_program(install: Install) -> None:
    command = install("echo fine")
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as started:
        hung = command._programs._stuck = Hung(started.pid)  # type: ignore[assignment] # noqa: SLF001
        hung.code = -signal.SIGKILL
        try:
            assert absent(command).why is Why.TIMEOUT
        finally:
            started.kill()
    assert output(command).out == "fine\n"


def test_waiting_for_a_killed_program_is_short() -> None:
    assert 0 < KILL_WAIT < 1


def test_a_program_beside_us_is_read_while_it_runs_and_ends_with_all_it_started(tmp_path: Path) -> None:
    script = f"echo out; echo err >&2; sleep 60 & echo $! > {tmp_path}/pid; wait"
    one = RunningProgram(["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    try:
        until("nothing printed", lambda: one.printed() == ("out\n", "err\n"), every=0.02)
        pid = int(
            until("no child", lambda: (tmp_path / "pid").read_text("utf-8").strip() or None, every=0.02)
        )
        assert one.status() is None
        one.signal(signal.SIGKILL)
        assert until("it lives", one.status, every=0.02) == -signal.SIGKILL
        until("its child lives", lambda: not Path(f"/proc/{pid}/fd/1").exists(), every=0.02)
        one.signal(signal.SIGTERM)
    finally:
        one.close()


def test_a_program_that_cannot_be_started_is_an_error_and_nothing_stays_open() -> None:
    before = open_files()
    with pytest.raises(OSError, match="No such file") as error:
        RunningProgram(["/no/such/program"], {})
    assert open_files() == before, error


def test_a_program_beside_us_that_is_closed_has_ended_and_nothing_stays_open() -> None:
    before = open_files()
    one = RunningProgram(["/bin/sleep", "60"], {})
    one.close()
    assert (one.status(), open_files()) == (-signal.SIGKILL, before)
