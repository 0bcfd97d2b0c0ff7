"""The command port, and the only place that starts programs other than our own."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

from wirewatch.core.ports import Output
from wirewatch.core.types import Absent, Why
from wirewatch.hw.interpreter import FOLDER

ALLOWED: Mapping[str, Sequence[str]] = {"ibstat": ("ibstat",)}
DEADLINE = 5.0
"""Seconds; ibstat takes milliseconds unless a device hangs."""
KILL_WAIT = 0.5
"""Seconds that a killed program may take to die."""
LIMIT = 1 << 20
"""Characters kept of the output."""
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/mellanox/bin"
"""Search path of programs: a service manager may give us no PATH."""


class Programs:
    """Runs programs one after the other, each in its own process group and killed at its deadline.

    They see the C locale, the search path and `environment`, and nothing of ours. A killed program that does
    not die keeps the next from being started.
    """

    def __init__(self, search: str, environment: Mapping[str, str] | None = None) -> None:
        self._search = search
        self._environment = {"LC_ALL": "C", "PATH": search, **(environment or {})}
        self._stuck: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], deadline: float) -> Output | Absent:
        """Run a program of the search path; MISSING where no program has that name."""
        name = command[0]
        program = shutil.which(name, path=self._search)
        if program is None:
            return Absent(Why.MISSING, f"{name} is not installed")
        if self._stuck is not None and _alive(self._stuck):
            return Absent(Why.TIMEOUT, f"an earlier {name} was killed and does not die; not starting another")
        return self._run(name, [program, *command[1:]], deadline)

    def _run(self, name: str, command: Sequence[str], deadline: float) -> Output | Absent:
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed programs, no shell, arguments checked by the caller
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._environment, start_new_session=True, cwd=FOLDER,
            )  # fmt: skip
        except OSError as error:
            return Absent(Why.DENIED, f"{name}: {error.strerror}", error.errno)
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            self._kill(process)
            return Absent(Why.TIMEOUT, f"{name} did not end within {deadline:g} s")
        return Output(process.returncode, _text(out), _text(err))

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill it with all that it started; leave behind a process that hangs in a driver, or it hangs us."""
        _signal(process.pid, signal.SIGKILL)
        try:
            process.communicate(timeout=KILL_WAIT)
        except subprocess.TimeoutExpired:
            self._stuck = process
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


class RunningProgram:
    """A program beside us, out of Ctrl-C's reach in its own group; files without a name keep its output."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the program; raises OSError where it cannot be started."""
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell; the caller checks the arguments
                command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, env=dict(environment),
                start_new_session=True, cwd=FOLDER,
            )  # fmt: skip
        except OSError:
            self._forget()
            raise

    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def printed(self) -> tuple[str, str]:
        """Return its output so far, standard output and errors, `LIMIT` bytes of each."""
        return _text(os.pread(self._out.fileno(), LIMIT, 0)), _text(os.pread(self._err.fileno(), LIMIT, 0))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all that it started, if it still runs."""
        if self._process.poll() is None:
            _signal(self._process.pid, number)

    def close(self) -> None:
        """Kill its processes that still run, and forget its output."""
        self.signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT)
        self._forget()

    def _forget(self) -> None:
        self._out.close()
        self._err.close()


class SystemCommand:
    """Programs of this machine that may be run by name, without arguments."""

    def __init__(self, search: str = SEARCH, deadline: float = DEADLINE) -> None:
        self._programs = Programs(search)
        self._deadline = deadline

    def run(self, name: str) -> Output | Absent:
        command = ALLOWED.get(name)
        if command is None:
            return Absent(Why.UNSUPPORTED, f"{name} is not on the list of programs that may be run")
        return self._programs.run(command, self._deadline)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether it still has a process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _alive(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether it or anything that it started still runs; `poll` first reaps a dead process."""
    return process.poll() is None or _signal(process.pid, 0)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")[:LIMIT]
