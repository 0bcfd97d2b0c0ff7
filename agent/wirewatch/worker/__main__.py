"""`python -m wirewatch.worker`: a plan on standard input, one document on descriptor 3, marks on 4.

Two arguments name other descriptors, for a parent that cannot choose the numbers that the child gets.
Libraries print to standard error. Nothing is torn down: the driver takes all back faster than NCCL gives it.
"""

import ctypes
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from wirewatch.core.probe import Document, ErrorKind, Plan, decode_plan, encode_document
from wirewatch.worker.process import follow, part, watch_ranks
from wirewatch.worker.run import Engine, EngineError, Run, marker, reporter

DESCRIPTORS = (3, 4)
_OUT_OF_MEMORY = re.compile("out.of.memory", re.IGNORECASE)
"""In the words of CUDA's libraries, each of which has errors of its own."""
_ENDING = threading.Lock()


def _start_driver() -> None:
    """Start CUDA while Python imports: both take some tenths of a second. A failure here shows later."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)


def _nccl(plan: Plan) -> Engine:
    threading.Thread(target=_start_driver, daemon=True).start()
    from wirewatch.worker.nccl_engine import NcclEngine

    return NcclEngine(plan)


def _torch(plan: Plan) -> Engine:
    threading.Thread(target=_start_driver, daemon=True).start()
    from wirewatch.worker.torch_engine import TorchEngine

    return TorchEngine(plan)


def _ranks(plan: Plan) -> Engine:
    # CUDA must not be started before its ranks are forked.
    from wirewatch.worker.distributed_engine import CpuRanks, GpuRanks

    return GpuRanks(plan) if plan.engine == "distributed" else CpuRanks(plan)


ENGINES: dict[str, Callable[[Plan], Engine]] = {
    "nccl": _nccl, "torch": _torch, "distributed": _ranks, "gloo": _ranks,
}  # fmt: skip
BETWEEN_NODES = frozenset({"distributed", "gloo"})


def _load(plan: Plan) -> Engine:
    if plan.meeting is not None and plan.engine not in BETWEEN_NODES:
        raise EngineError("no_engine", f"engine {plan.engine} runs inside one node alone")
    try:
        return ENGINES[plan.engine](plan)
    except KeyError as error:
        raise EngineError("no_engine", f"there is no engine {plan.engine!r}") from error
    except (ImportError, RuntimeError, OSError) as error:
        raise EngineError("no_engine", f"engine {plan.engine} cannot be loaded: {error}") from error


def _measured(run: Run, engine: Engine) -> None:
    """Measure; any error of a library becomes an EngineError, which begins with the step of the failure."""
    try:
        run.measure(engine)
    except Exception as error:
        kind, said = _reason(error)
        raise run.error(kind, said) from error


def _reason(error: Exception) -> tuple[ErrorKind, str]:
    if isinstance(error, EngineError):
        return error.kind, str(error)
    traceback.print_exception(error)
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    return "out_of_memory" if _OUT_OF_MEMORY.search(said) else "internal", said


def _probe(plan: Plan, began: float, document_fd: int, marks_fd: int) -> NoReturn:
    engine: Engine | None = None
    error: EngineError | None = None
    run = Run(plan, marker(marks_fd, pauses=plan.pauses), began, reporter(marks_fd))
    try:
        engine = _load(plan)
        if engine.leads:
            watch_ranks(lambda said: _end(run.document(engine, run.error("internal", said)), document_fd))
        else:
            run.mark, run.report = marker(marks_fd, pauses=False), lambda _: None
        _measured(run, engine)
        part()
    except EngineError as reason:
        error = reason
    if engine is None or engine.leads:
        _end(run.document(engine, error), document_fd)
    if error is not None:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    os._exit(0 if error is None else 1)


def _end(document: Document, descriptor: int) -> NoReturn:
    """Hand over the document, of the thread that comes first, and end the process."""
    _ENDING.acquire()
    data = encode_document(document)
    while data:
        data = data[os.write(descriptor, data) :]
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    began = time.monotonic()
    # It may have ended before this process could ask for its parent.
    parent = int(sys.argv[3]) if sys.argv[3:] else os.getppid()
    # The whole group: if the kernel was too late to kill this process, the other ranks may hang without it.
    follow(parent, lambda: os.killpg(0, signal.SIGKILL))
    os.dup2(2, 1)
    plan = decode_plan(sys.stdin.readline())
    document_fd, marks_fd = map(int, sys.argv[1:3]) if sys.argv[1:] else DESCRIPTORS
    _probe(plan, began, document_fd, marks_fd)


if __name__ == "__main__":
    main()
