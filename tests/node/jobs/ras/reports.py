"""What RAS answers: two answers of NCCL 2.28.9 as it gave them, others by their form, texts of older ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEALTHY = (Path(__file__).parent / "healthy-2.28.9.json").read_text("utf-8")
"""Four ranks on one node, pids 915 to 918, 1750 all-reduces each."""
STOPPED = (Path(__file__).parent / "stopped-2.28.9.json").read_text("utf-8")
"""The same job with rank 3 stopped, and the comma left out."""
OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
HOST = "192.0.2.2"


def rank(number: int, pid: int, counts: Mapping[str, int], **status: Any) -> dict[str, Any]:
    """A rank that answered."""
    fine = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
    return {
        "rank": number, "host": HOST, "pid": pid, "cuda_dev": number, "nvml_dev": number,
        "status": {**fine, "abort_flag": False, **status},
        "collective_counts": {op: counts.get(op, 0) for op in OPS},
    }  # fmt: skip


def missing(number: int, pid: int, *, unresponsive: bool = True, dead: bool = False) -> dict[str, Any]:
    """A rank that did not."""
    return {
        "rank": number, "host": HOST, "pid": pid, "cuda_dev": number, "nvml_dev": number,
        "status": {"unresponsive": unresponsive, "considered_dead": dead},
    }  # fmt: skip


def communicator(
    ranks: Sequence[Mapping[str, Any]], lost: Sequence[Mapping[str, Any]] = (), name: int = 0x17FA
) -> dict[str, Any]:
    """One communicator of these ranks; `name` is its hash."""
    return {
        "hash": f"0x{name:x}", "secondary_hash": "0x53db:0x10ca", "size": len(ranks) + len(lost),
        "ranks_count": len(ranks), "missing_ranks_count": len(lost), "ranks": list(ranks),
        "missing_ranks": list(lost),
    }  # fmt: skip


def report(*communicators: Mapping[str, Any], nccl: str = "2.29.2") -> str:
    """A whole answer, well formed."""
    return json.dumps(
        {
            "nccl_version": nccl, "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
            "timestamp": "2026-11-22 12:00:00", "communicators_count": len(communicators),
            "communicators": list(communicators), "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
        },
        indent=2,
    )  # fmt: skip


def job(pids: Sequence[int], launched: Sequence[int], op: str = "AllReduce", name: int = 0x17FA) -> str:
    """A job of one communicator whose ranks have these processes and have launched so many."""
    ranks = [
        rank(number, pid, {op: count})
        for number, (pid, count) in enumerate(zip(pids, launched, strict=True))
    ]  # fmt: skip
    return report(communicator(ranks, name=name))


def text(rows: str, errors: str = "", warnings: str = "", nccl: str = "2.26.2", processes: int = 4) -> str:
    """The text of a version before 2.28.7, with the rows of its table of communicators."""
    head = (
        f"NCCL version {nccl} compiled with CUDA 12.6\n"
        "CUDA runtime version 12060, driver version 12060\n\n"
        "Job summary\n===========\n\n"
        "  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n"
        f"      1  {processes:>9}            1  {processes:>9}  {processes:>7}\n\n"
        "Communicators... (0.00s)\n=============\n\n"
    )
    table = (
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    #  in group  per comm  per node  per comm  in group\n"
    )
    return f"{head}{table}{rows}\nErrors\n======\n\n{errors}Warnings\n========\n\n{warnings}"


ROW = "    0         1         1         4         4         4   RUNNING  {}\n"
TEXT_HEALTHY = text(ROW.format("OK"))
TEXT_SKIPPED = text(
    ROW.format("MISMATCH"),
    warnings="""\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 641
  Rank 2 has launched up to operation 640 -- GPU 2 (NVML 6) managed by process 917 on node 192.0.2.2

""",
)
TEXT_FIRST = text(
    "    0         1         4         8        32        32   RUNNING  MISMATCH\n",
    nccl="2.24.3",
    processes=32,
    warnings="""\
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  29 ranks have launched up to operation 6650
  3 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- [process information not found]
""",
)
TEXT_STOPPED = text(
    ROW.format("INCOMPLETE"),
    errors="""\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 918 on node 192.0.2.2 managing GPU 3

#0-0 (17fa1bf33d62ca88) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 918 on node 192.0.2.2

""",
    warnings="TIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n\n",
)
TEXT_DEAD = text(
    ROW.format("INCOMPLETE"),
    nccl="2.24.3",
    errors="""\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 918 on node 192.0.2.2 managing GPU 3

#0-0 (17fa1bf33d62ca88) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 918 on node 192.0.2.2

""",
)
TEXT_ENDING = text(
    "    0         1         1         4         4         4  FINALIZE  MISMATCH\n"
    "    1         2         1         2         2         4      INIT      OK\n",
    warnings="""\
#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  3 ranks have status NOCOMM
  Rank 1 has status FINALIZE -- GPU 1 managed by process 916 on node 192.0.2.2

""",
)
TEXT_ERROR = text(
    ROW.format("ERROR"),
    errors="""\
#0-0 (9e17999afaa87dbb) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported Remote error -- GPU 1 managed by process 916 on node 192.0.2.2

""",
)
TEXTS = (
    TEXT_HEALTHY, TEXT_SKIPPED, TEXT_FIRST, TEXT_STOPPED, TEXT_DEAD, TEXT_ENDING, TEXT_ERROR,
)  # fmt: skip
