"""Proof on real hardware, part by part.

    PYTHONPATH=agent python3 -m proof.hardware parity cost interference record recover --out DIR

Prints tables and a line PASS or FAIL for each limit, writes DIR/<part>.json; exit status 1 when a limit
fails or a part could not be done. A command of 10 minutes holds `cost` alone, or the four others together,
or `release`, or `probe faults`, or `preempt`, or `straggler`, or `primitives`; these five want several GPUs,
and `probe` and `primitives` want nccl-tests. `kills` takes eleven minutes; `--kinds` for pieces of it.
`lockstep` takes 40 minutes on several GPUs; `--shapes`, `--trials` and `--each` for pieces of it.
`release` needs root where others' processes are to be named, and several GPUs for its release in a probe.
`primitives` takes six minutes at most, `sweep` seven; it wants nccl-tests and several GPUs too.
`advice` wants four GPUs and takes six minutes; with fewer it fails.
`runningjobs` takes 40 minutes on several GPUs; `--shapes`, `--trials` and `--each` for pieces of it.
`explained` takes 80 s a case, 18 minutes in all; `--shapes` for cases by name. `jobrecording` takes three.
`tap` takes five minutes of several GPUs, wants nccl-tests and compiles with cc.
`hangs` takes five minutes of several GPUs; `posing` two minutes of a single one,
`pairs` four, as root with ip and tc; `--engine gloo` tries it on processors alone.
`lockstep --shapes uneven` takes 90 s, `bursts` two minutes, of several GPUs.
`prober` needs root, and files of ours and of Python that every user may read.
`hostlinks` takes four minutes of one GPU or more and compiles with cc.
`flights` takes three minutes of two GPUs; `--engine gloo` tries it on processors.
`nics` takes three minutes of two GPUs, as root with ip and tc; `--engine gloo` tries it on processors.
`taken` takes eight minutes, as root with unshare and mount; it wants two GPUs. `upgraded` takes four.
`--gpus 0 1` shows the parts these GPUs alone, as root, so that two runs of it can go on beside each other.

WIREWATCH_KIT_SERVE="--replay h200x8 --loop" lets `cost`, `recover`, `release` and `prober` try the kit
without GPUs; `prober` then probes processors, by engine gloo of torch, and nobody comes to them.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from itertools import dropwhile
from pathlib import Path

from proof.hardware import lane
from proof.hardware.kit import Report

PARTS = (
    "parity", "wires", "cost", "interference", "record", "recover", "release", "probe", "faults", "preempt",
    "straggler", "lockstep", "prober", "kills", "primitives", "sweep", "advice",
    "nccl", "tap", "bursts", "hangs", "runningjobs", "explained", "jobrecording", "posing", "pairs",
    "taken", "tapclock", "upgraded", "waits", "flights", "hostlinks", "nics",
)  # fmt: skip
WHOLE = frozenset({"preempt", "taken"})
"""Parts that need the whole machine: a daemon that sees some of its GPUs reports the others missing."""


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m proof.hardware", description="Proof on real hardware.")
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", required=True, type=Path, help="folder for the results")
    parser.add_argument("--seconds", type=float, default=480.0, help="cost: length of the whole run")
    parser.add_argument("--pairs", type=int, default=5, help="interference: pairs of windows")
    parser.add_argument("--window", type=float, default=20.0, help="interference: seconds of a window")
    parser.add_argument(
        "--nccl-tests", type=Path, metavar="DIR", help="probe, primitives, sweep: folder with all_reduce_perf"
    )
    parser.add_argument(
        "--trials", type=int, help="preempt, straggler, lockstep, kills, sweep, advice: number"
    )
    parser.add_argument(
        "--each", type=float, default=120.0, help="lockstep: seconds of each healthy job, 0: none"
    )
    parser.add_argument(
        "--shapes", nargs="+", metavar="SHAPE", help="lockstep, hangs: of these jobs only, or uneven"
    )
    parser.add_argument("--healthy", type=float, default=0.0, help="straggler: seconds of healthy probes")
    parser.add_argument("--loads", nargs="+", metavar="KIND", help="straggler: with these loads only")
    parser.add_argument("--startups", type=int, default=20, help="preempt: start-ups of a server")
    parser.add_argument(
        "--kinds", nargs="+", metavar="KIND",
        help="kills: nvml, worker, daemon; runningjobs: healthy, late, wire; "
        "tap, probe, preempt, taken, upgraded: their pieces",
    )  # fmt: skip
    parser.add_argument("--inspector", type=Path, metavar="LIB", help="runningjobs: this plugin, not the tap")
    parser.add_argument("--gpus", nargs="+", type=int, metavar="N", help="as if there were these GPUs alone")
    parser.add_argument(
        "--engine",
        choices=("distributed", "gloo"),
        default="distributed",
        help="pairs: on GPUs or processors",
    )
    options = parser.parse_args(arguments)
    if options.gpus and (alone := sorted(WHOLE & set(options.parts))):
        parser.error(f"{', '.join(alone)}: not with --gpus, since it takes all GPUs of the machine")
    return options


def without_gpus(arguments: Sequence[str]) -> list[str]:
    """The arguments less `--gpus` and its numbers."""
    at = arguments.index("--gpus")
    rest = dropwhile(str.isdigit, arguments[at + 1 :])
    return [*arguments[:at], *rest]


def _run(part: str, options: argparse.Namespace) -> bool:
    report = Report(part, options.out)
    began = time.monotonic()
    print(f"\n=== {part}", flush=True)
    report.attempt("the part", lambda: import_module(f"proof.hardware.{part}").run(report, options))
    report.note(seconds=round(time.monotonic() - began, 1))
    return report.ok


def _terminated(_number: int, _frame: object) -> None:
    """Leave through the context managers, so that no daemon and no job is left running."""
    sys.exit(1)


def main() -> int:
    options = options_of(sys.argv[1:])
    if options.gpus:
        lane.enter(options.gpus, without_gpus(sys.argv[1:]))
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _terminated)
    results = {part: _run(part, options) for part in options.parts}
    print("\n" + "  ".join(f"{part}: {'PASS' if ok else 'FAIL'}" for part, ok in results.items()), flush=True)
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
