"""Dumps of the flight recorder as NCCL's process groups write them, drawn: ranks and what each calls.

The real ones of tests/lab/study/flightdumps are of gloo (torch 2.13), whose format is the same but for the
groups' ranks and the states.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirewatch_lab.study.flightdumps import RankDump, read_dump

AT = 1_795_000_000
REAL = Path(__file__).with_name("flightdumps")
WORLD = "0"


@dataclass
class Made:
    """One call; `after`: seconds after the start of the job."""

    group: str = WORLD
    seq: int = 1
    op: str = "all_reduce"
    sizes: Sequence[Sequence[int]] = ((1024, 4),)
    dtype: str = "Float"
    state: str = "completed"
    retired: bool | None = None
    p2p_seq: int = 0
    p2p: bool = False
    after: float = 0.0
    out: Sequence[Sequence[int]] | None = None


@dataclass
class FlightJob:
    """A job: the ranks and names of its groups, and each rank's calls."""

    groups: Mapping[str, tuple[str, Sequence[int]]] = field(
        default_factory=lambda: {WORLD: ("default_pg", (0, 1, 2, 3))}
    )
    calls: dict[int, list[Made]] = field(default_factory=dict)
    version: str = "2.10"
    first: int = 0

    def entry(self, number: int, one: Made) -> dict[str, Any]:
        done = one.state == "completed"
        out = one.sizes if one.out is None else one.out
        return {
            "record_id": self.first + number, "pg_id": int(one.group),
            "process_group": (one.group, self.groups[one.group][0]), "thread_name": "python",
            "thread_id": "1", "collective_seq_id": one.seq, "p2p_seq_id": one.p2p_seq, "op_id": number + 1,
            "profiling_name": f"nccl:{one.op}", "time_created_ns": int((AT + one.after) * 1e9),
            "input_sizes": [list(size) for size in one.sizes], "input_dtypes": [one.dtype] * len(one.sizes),
            "output_sizes": [list(size) for size in out], "output_dtypes": [one.dtype] * len(out),
            "state": one.state,
            "time_discovered_started_ns": None if one.state == "scheduled" else AT * 10**9,
            "time_discovered_completed_ns": AT * 10**9 if done else None,
            "retired": done if one.retired is None else one.retired, "timeout_ms": 600_000,
            "is_p2p": one.p2p,
            "frames": [
                {"name": "wrapper", "filename": "/usr/lib/torch/distributed/c10d_logger.py", "line": 7},
                {"name": "step", "filename": "/job/train.py", "line": 40 + one.seq},
            ],
        }  # fmt: skip

    def dump(self, rank: int) -> dict[str, Any]:
        """The containers of a rank's dump."""
        own = {name: one for name, one in self.groups.items() if rank in one[1]}
        return {
            "version": self.version, "comm_lib_version": "2.28.9",
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
                for name, (desc, ranks) in own.items()
            },
            "pg_status": {"0": {"last_enqueued_collective": 1}},
            "entries": [self.entry(n, one) for n, one in enumerate(self.calls.get(rank, ()))],
        }  # fmt: skip

    def read(self, *ranks: int, hosts: Mapping[int, str] | None = None) -> list[RankDump]:
        """The dumps of these ranks, or of all that have calls, as they are read from pickles."""
        of = ranks or tuple(self.calls)
        named = hosts or {}
        return [
            read_dump(pickle.dumps(self.dump(rank), 2), rank, named.get(rank, ""), f"rank_{rank}")
            for rank in of
        ]

    def write(self, folder: Path, *ranks: int) -> None:
        """The files of these ranks, or of all."""
        for rank in ranks or tuple(self.calls):
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(self.dump(rank), 2))


def world(ranks: int = 4, done: int = 3) -> FlightJob:
    """A job in whose only group all ranks have completed some all_reduces."""
    members = tuple(range(ranks))
    calls = {rank: [Made(seq=n, after=n) for n in range(1, done + 1)] for rank in members}
    return FlightJob({WORLD: ("default_pg", members)}, calls)


def waits(job: FlightJob, ranks: Sequence[int], **given: Any) -> FlightJob:
    """The job, in which these ranks have called something that is not complete."""
    for rank in ranks:
        job.calls.setdefault(rank, []).append(Made(**{"state": "started", "after": 10.0, **given}))
    return job
