"""One line of a file of NCCL Inspector, from bytes that nobody vouches for. Pure.

A line is a JSON object, by the source of NCCL 2.28.3 to 2.30.7. The bandwidths in it are passed over: they
are of one rank's own duration, and so low on every rank but the late one.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from wirewatch.core.probe import ALLTOALL, DIVIDED
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import printable
from wirewatch.jobs.ras.answer import OPS
from wirewatch.jobs.tap.ringfile import LARGEST, UNKNOWN

LINE_BYTES = 1 << 16
"""A longer line is refused; with all events of 64 channels it has 20,000 bytes."""
GPU_CLOCK, PROVEN = "kernel_gpu", "v4."
"""A time of the GPU; the format of NCCL 2.28 to 2.30: later formats give calls times of others (ADR 0081)."""
_Ranks = Annotated[int, Field(ge=1, le=1 << 20)]
_Number = Annotated[int, Field(ge=0, lt=1 << 64)]
_Text = Annotated[str, Field(max_length=2048)]


@dataclass(frozen=True, slots=True)
class InspectedCommunicator:
    """A communicator as a rank describes it; `comm_name` since NCCL 2.30."""

    id: Annotated[str, Field(pattern=r"^0x[0-9a-f]{1,16}$")]
    rank: Annotated[int, Field(ge=0)]
    n_ranks: _Ranks
    nnodes: _Ranks
    comm_name: _Text | None = None


@dataclass(frozen=True, slots=True)
class InspectedOrigin:
    """Who wrote a line, as it sees itself, and when."""

    inspector_output_format_version: Annotated[str, Field(pattern=r"^v\d{1,3}(\.\d{1,3})?$")]
    dump_timestamp_us: _Number
    pid: _Number


@dataclass(frozen=True, slots=True)
class InspectedCollective:
    """One collective of one rank, with NCCL's number of it within its operation."""

    coll: _Text
    coll_sn: _Number
    coll_msg_size_bytes: _Number
    coll_exec_time_us: Annotated[int, Field(ge=0, le=3_600_000_000)]
    coll_timing_source: _Text

    @property
    def op(self) -> str:
        """Return the operation as nccl-tests names it; Inspector calls several others `Invalid`."""
        return ALLTOALL if self.coll == "All2All" else OPS.get(self.coll, UNKNOWN)

    def size(self, ranks: int) -> int | None:
        """Return the message as nccl-tests counts it; None of a type that counts as minus one byte there."""
        size = self.coll_msg_size_bytes * (ranks if self.op in DIVIDED else 1)
        return size if self.op != UNKNOWN and 0 < size <= LARGEST else None


@dataclass(frozen=True, slots=True)
class InspectedLine:
    """A line; it has a collective, or a send or receive."""

    header: InspectedCommunicator
    metadata: InspectedOrigin
    coll_perf: InspectedCollective | None = None
    p2p_perf: dict[str, object] | None = None

    @property
    def written(self) -> float:
        """Return when it was written, in Unix seconds."""
        return self.metadata.dump_timestamp_us / 1e6

    @property
    def proven(self) -> bool:
        """Tell whether such an NCCL gives each call its own time: measured with 2.28.9 and 2.30.7."""
        return self.metadata.inspector_output_format_version.startswith(PROVEN)

    @property
    def at_once(self) -> bool:
        """Tell whether the line came right after its collective: before NCCL 2.30, which keeps them first."""
        return self.proven and self.header.comm_name is None

    @property
    def nccl(self) -> str:
        """Return the versions of NCCL whose Inspector writes so."""
        named = "2.28 or 2.29" if self.header.comm_name is None else "2.30"
        return named if self.proven else "2.31 or later"


_LINE = TypeAdapter(InspectedLine)


def parse_line(data: bytes) -> InspectedLine | Absent:
    """Return the content of a line, or why Inspector did not write it."""
    if len(data) > LINE_BYTES:
        return Absent(Why.MALFORMED, f"a line of more than {LINE_BYTES} bytes")
    try:
        line = _LINE.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return Absent(Why.MALFORMED, printable(" ".join(map(str, (*first["loc"], first["msg"]))))[:200])
    header = line.header
    if header.rank >= header.n_ranks or header.nnodes > header.n_ranks:
        return Absent(Why.MALFORMED, f"rank {header.rank} of {header.n_ranks} on {header.nnodes} nodes")
    if (line.coll_perf is None) == (line.p2p_perf is None):
        return Absent(Why.MALFORMED, "neither one collective nor one send or receive")
    return line
