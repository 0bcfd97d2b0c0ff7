"""What one probe says of one GPU, as named numbers. Pure; needs the core alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Why


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit, `seconds`, `bytes per second` or `hertz`, or why there is none."""

    name: str
    unit: str
    value: float | Absent


def of_gpu(probed: Probed, uuid: str) -> tuple[Quantity, ...]:
    """What a probe measured of the GPU of this UUID: alone, and over the median of its peers.

    Always the same names in the same order, whatever the probe has measured.
    """
    place = next((i for i, gpu in enumerate(probed.gpus) if gpu.uuid == uuid), None)
    if place is None:
        return tuple(
            Quantity(n, u, Absent(Why.MISSING, "the GPU was not in this probe")) for n, u in QUANTITY_NAMES
        )
    values = (*_alone(probed, place), *_copies(probed, place), _clock(probed, place))
    return tuple(
        Quantity(name, unit, value) for (name, unit), value in zip(QUANTITY_NAMES, values, strict=True)
    )


QUANTITY_NAMES = (
    ("matrix_product_seconds", "seconds"),
    ("memory_copy_bytes_per_second", "bytes per second"),
    ("copies_from_it_bytes_per_second", "bytes per second"),
    ("copies_to_it_bytes_per_second", "bytes per second"),
    ("sm_clock_hertz", "hertz"),
)
"""Names and units of the quantities; copies are the median over the GPU's peers."""


def _alone(probed: Probed, place: int) -> tuple[float | Absent, float | Absent]:
    for micro in probed.document.micros if probed.document else ():
        if micro.gpu == place:
            return micro.product, micro.copied
    absent = Absent(Why.MISSING, "this probe measured no GPU alone")
    return absent, absent


def _copies(probed: Probed, place: int) -> Iterator[float | Absent]:
    """From it and to it."""
    copies = probed.document.copies if probed.document else ()
    for end in ("source", "destination"):
        rates = [one.size_bytes / one.seconds for one in copies if getattr(one, end) == place]
        yield median(rates) if rates else Absent(Why.MISSING, "this probe made no copies between GPUs")


def _clock(probed: Probed, place: int) -> float | Absent:
    told = next((clock.sm for clock in probed.clocks if clock.gpu == place), None)
    return Absent(Why.MISSING, "the clock was not read") if told is None else told
