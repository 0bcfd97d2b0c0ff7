"""A process that imports all of wirewatch once, and forks a process of its own for each command.

A new interpreter imports for most of a second before `serve` begins, and a test of what the daemon does need
not wait for that. A module runs as under `python -m`: as `__main__`, with the arguments, environment, working
directory and descriptors of the request, until it ends with an exit status of its own.

All processes of a test run call the same one. It forks a server for each of them, which forks its commands.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

PACKAGES = ("wirewatch", "wirewatch_lab", "wirewatch_fleet")
"""The node alone is tested without the other two."""
MOST = 1 << 20
"""Bytes of a request."""
DESCRIPTORS = 4
"""Of a request: input, output, errors, and where the process id and the exit status are written."""
NOT_IMPORTED = ("wirewatch.worker", *(f"{name}.__main__" for name in PACKAGES))
"""Programs, which are run and not imported."""
QUESTIONER = "wirewatch.hw.nvml.child"
FORKS = "WIREWATCH_TEST_FORKS"
"""The variable of a command whose process that talks to NVML is forked."""
LATE = ("pydantic.v1",)
"""FastAPI imports it when it makes an application."""


def main() -> None:
    """Fork a server for each process that calls, in it fork for each request, and there run the command."""
    callers, starter = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    with callers, starter:
        requests = _called(callers, starter)
    if requests is None:
        return
    with requests:
        words = _serve(requests)
    if words:
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _called(callers: socket.socket, starter: socket.socket) -> socket.socket | None:
    """Fork for each process that calls; returns the connection in a child, None at the end."""
    with selectors.DefaultSelector() as selector:
        for end in (callers, starter):
            selector.register(end, selectors.EVENT_READ)
        while all(key.fileobj is callers for key, _ in selector.select()):
            requests, _ = callers.accept()
            _prepare()
            if os.fork() == 0:
                requests.send(str(os.getpid()).encode())
                return requests
            requests.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return None


@cache
def _prepare() -> None:
    """Import everything and read the bundled recordings, which no command changes."""
    for name in (*_modules(), *LATE):
        importlib.import_module(name)
    load = read_once()
    for name in importlib.import_module("wirewatch.hw.recording").bundled_names():
        assert load(name).ports
    _make_once()
    _fork_questioners()
    # Children share the memory of what is never collected.
    gc.collect()
    gc.freeze()


def _modules() -> Iterator[str]:
    for name in PACKAGES:
        if find_spec(name) is not None:
            found = pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}.")
            yield from (one.name for one in found if not one.name.startswith(NOT_IMPORTED))


def read_once() -> Any:
    """Let commands of this process read each bundled recording once; return the function that reads."""
    recording: Any = importlib.import_module("wirewatch.hw.recording")
    read = recording.load_recording
    bundled = cache(read)

    def load(name: str) -> object:
        folder = recording.find(name)
        return bundled(folder.name) if folder.parent == recording.BUNDLED else read(name)

    for module in ("wirewatch.cli.hardware", "wirewatch.hw.overlay"):
        vars(importlib.import_module(module))["load_recording"] = load
    return load


def _make_once() -> None:
    """Make what each command would make for itself: models, adapters, templates, a list of commands."""
    config: Any = importlib.import_module("wirewatch.config")
    every = importlib.import_module("wirewatch.catalogue").discover()
    make, made = config.model, config.model(every)
    config.model = lambda collectors: made if collectors is every else make(collectors)
    importlib.import_module("wirewatch.cli").cli.list_commands(None)
    environment: Any = vars(importlib.import_module("wirewatch.cli.templates"))["_environment"]
    for name in PACKAGES:
        with suppress(ModuleNotFoundError, ValueError):
            templates = environment(f"{name}.cli")
            for template in templates.list_templates():
                templates.get_template(template)
    for name in [name for name in sys.modules if name.startswith(PACKAGES)]:
        for kind, value in [(type(value).__name__, value) for value in vars(sys.modules[name]).values()]:
            if kind == "TypeAdapter" and hasattr(value, "_kind"):
                value.dump_json  # noqa: B018 - made when it is first used


def _fork_questioners() -> None:
    """Fork the process that talks to NVML, where a test says so, instead of starting an interpreter for it.

    A new one imports for a third of the seconds that a daemon takes in a test.
    """
    execute: Any = vars(subprocess)["_fork_exec"]
    # No thread of a daemon holds a lock that the child needs.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

    def start(words: Sequence[str], *given: Any) -> int:
        if QUESTIONER not in words or "coverage" in sys.modules or FORKS not in os.environ:
            return int(execute(words, *given))
        child = os.fork()
        if child == 0:
            _, _, _, folder, environment, stdin, _, _, stdout, *_ = given
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            _question(folder, dict(os.fsdecode(one).split("=", 1) for one in environment))
        return child

    vars(subprocess)["_fork_exec"] = start


def _question(folder: str, environment: Mapping[str, str]) -> None:
    """Be the process that talks to NVML, as a new interpreter is, to the end."""
    code = 1
    try:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
        importlib.import_module(QUESTIONER).main()
        code = 0
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request; returns the command line in a child, nothing once the other end is closed."""
    room = socket.CMSG_SPACE(DESCRIPTORS * array("i").itemsize)
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fd)
                    _report(key.fd, *key.data)
                    continue
                body, ancillary, _, _ = requests.recvmsg(MOST, room)
                if not body:
                    return []
                descriptors = array("i", ancillary[0][2])
                child = os.fork()
                if child == 0:
                    _become(
                        json.loads(body),
                        descriptors,
                        [key for key in selector.get_map().values() if key.data],
                    )
                    return list(json.loads(body)["words"])
                *standard, status = descriptors
                for descriptor in standard:
                    os.close(descriptor)
                os.write(status, f"{child}\n".encode())
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, status))


def _report(ended: int, child: int, status: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(BrokenPipeError):
        os.write(status, f"{code}\n".encode())
    os.close(ended)
    os.close(status)


def _become(
    request: dict[str, Any], descriptors: "array[int]", others: Sequence[selectors.SelectorKey]
) -> None:
    """In the child: close what is of other children, and take the streams and surroundings of the request."""
    for other in others:
        os.close(other.fd)
        os.close(other.data[1])
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = os.fdopen(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w")  # type: ignore[misc]
    errors = os.fdopen(2, "wb", 0)
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(errors, errors="backslashreplace", write_through=True)  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if "coverage" in sys.modules:
        _of_test(os.environ.get("WIREWATCH_TEST", ""))


def _of_test(name: str) -> None:
    """Let a running measurement of coverage know whose command this is: it began before there was a test."""
    measuring = importlib.import_module("coverage").Coverage.current()
    if measuring is not None:
        measuring.switch_context(name)


if __name__ == "__main__":
    main()
