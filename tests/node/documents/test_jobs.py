"""The document of the rings: what is not known is null or empty, and says why."""

from dataclasses import replace

import pytest

from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.jobs import RefusedRing, Ring, RingCounts, RingReading, RingsReading, RingState
from wirewatch.core.types import Absent, Why
from wirewatch.documents.jobs import JobsStatusDocument, RefusedFile, RingStatus, jobs_status
from wirewatch.jobs.tap.carriers import Carriers, CarrierStatus

GONE = Absent(Why.MISSING, "no such GPU")
RING = Ring(
    "7.ring", 0xAB, 8, 3, 2, "GPU-0", 7, 4711, 1000, EPOCH, RingState.LIVE,
    RingCounts(written=5, dropped=2, enqueued=9, sends=4, captured=3, event=90.0),
    "world", "2.28.9", 5, "0.3", 0.1, 1.0, budget=50, stride=4,
)  # fmt: skip
STATUS = RingStatus(
    "7.ring", "live", "0xab", "world", 3, 8, 2, "GPU-0", 7, 4711, 1000, "0.3", "2.28.9", 5, EPOCH, 10.0,
    9, 5, 2, 3, 4, 0.1, 1.0, timing_budget=50, timing_share=0.025,
)  # fmt: skip
CARRIER = CarrierStatus(7, 1000, "/opt/libwirewatch-tap.so", replaced=False)


def document(found: RingsReading | Absent, carriers: Carriers | None = None) -> JobsStatusDocument:
    return jobs_status("/run/rings", found, carriers or Carriers(), ["remark"], (EPOCH, 100.0))


@each(
    ("why", "ring", "status"),
    [
        ("all is known", RING, STATUS),
        ("no GPU", replace(RING, gpu=GONE), replace(STATUS, gpu=None)),
        ("no process of this machine", replace(RING, host_pid=GONE), replace(STATUS, host_pid=None)),
        ("an event of a moment ahead", replace(RING, counts=replace(RING.counts, event=101.0)),
         replace(STATUS, quiet_seconds=0.0)),
        ("not timed", replace(RING, untimed=1),
         replace(
             STATUS, timing_share=0.0,
             untimed="its tap only counts: WIREWATCH_TAP_ON_MS or WIREWATCH_TAP_BUDGET is 0",
         )),
        ("for a reason of a later tap", replace(RING, untimed=63), replace(STATUS, timing_share=0.0)),
    ],
)  # fmt: skip
def test_a_ring_has_its_numbers_and_null_for_what_is_not_known(
    why: str, ring: Ring, status: RingStatus
) -> None:
    assert document(RingsReading((RingReading(ring),))).rings == [status], why


def test_a_folder_that_was_read_has_no_reason_and_its_refused_files_have() -> None:
    found = document(RingsReading((), (RefusedRing("x", GONE),)), Carriers([CARRIER], 2, late=True))
    assert (found.read, found.why, found.remarks, found.refused) == (
        True, "", ["remark"], [RefusedFile("x", str(GONE))]
    )  # fmt: skip
    assert (found.carriers, found.unread_processes, found.late) == ([CARRIER], 2, True)


@pytest.mark.parametrize(
    ("found", "why"),
    [(Absent(Why.MISSING, "/run/rings"), "missing"), (Absent(Why.DENIED, "no right"), "denied: no right")],
)
def test_a_folder_that_was_not_read_says_why(found: Absent, why: str) -> None:
    assert (document(found).read, document(found).why, document(found).rings) == (False, why, [])
