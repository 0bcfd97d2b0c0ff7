"""parity, second half: NVLink counters after plain peer copies of a known size."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from proof.hardware.daemon import Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.scrape import Scrape
from proof.hardware.smi import link_bytes, smi

COPIES = 64
MEBIBYTES = 512
WITHIN = 0.02
LINK_SLACK = 1 << 20
"""Bytes that a link may differ by at any time: idle links exchange a little."""
SETTLE = 1.0
WAYS = ("transmit", "receive")

Bytes = dict[str, dict[str, float]]
"""By UUID, by direction."""


@dataclass(frozen=True)
class Moment:
    """Bytes so far by both witnesses; `scrape` is what ours were read from."""

    ours: Bytes
    theirs: Bytes
    links: dict[str, dict[str, dict[int, int]]]
    scrape: Scrape


def compare(report: Report, daemon: Daemon, here: Sequence[str]) -> None:
    with Job("ring", "--copies", str(COPIES), "--mib", str(MEBIBYTES)) as job:
        seen = int(job.wait("READY", 240))
        if seen != len(here):
            raise KitError(f"torch sees {seen} GPUs, nvidia-smi {len(here)}")
        before = _moment(daemon, here)
        job.send("go")
        copied = json.loads(job.wait("DONE", 120))
        after = _moment(daemon, here)
    report.note(copied=copied)
    _judge(report, here, before, after, float(copied["bytes_each"]))
    _links(report, here, after)


def _moment(daemon: Daemon, here: Sequence[str]) -> Moment:
    """Both witnesses, once the counters are at rest.

    A counter that did not move with its twin is withheld for a poll, so a gap is looked at again.
    """
    time.sleep(SETTLE)
    for _ in range(4):
        scrape = daemon.fresh(time.time(), names=("nvlink", "inventory"))
        told = {u: {w: scrape.value(f"nvlink_{w}_bytes_total", uuid=u) for w in WAYS} for u in here}
        ours = {u: {w: v for w, v in ways.items() if v is not None} for u, ways in told.items()}
        if all(len(ways) == len(WAYS) for ways in ours.values()):
            links = link_bytes(smi("nvlink", "-gt", "d"))
            theirs = {u: {w: float(sum(links[u][w].values())) for w in WAYS} for u in here}
            return Moment(ours, theirs, links, scrape)
    gaps = [u for u, ways in ours.items() if len(ways) != len(WAYS)]
    raise KitError(f"no NVLink byte counters of {', '.join(gaps)} in four polls")


def _judge(report: Report, here: Sequence[str], before: Moment, after: Moment, copied: float) -> None:
    rows: list[list[object]] = []
    off: dict[tuple[str, str], float] = {}
    for uuid in here:
        for way in WAYS:
            ours = after.ours[uuid][way] - before.ours[uuid][way]
            theirs = after.theirs[uuid][way] - before.theirs[uuid][way]
            deviations = {"nvidia-smi": _off(ours, theirs), "the bytes copied": _off(ours, copied)}
            rows.append(
                [uuid, way, ours, theirs, copied, *(f"{100 * d:+.3f} %" for d in deviations.values())]
            )
            for other, value in deviations.items():
                if abs(value) >= abs(off.get((way, other), 0.0)):
                    off[way, other] = value
    header = ["GPU", "way", "wirewatch", "nvidia-smi", "copied", "vs nvidia-smi", "vs copied"]
    report.table("bytes of the copies", header, rows)
    for (way, other), value in off.items():
        name = f"traffic: {way} within {100 * WITHIN:.0f} % of {other}"
        report.check(name, ok=abs(value) <= WITHIN, told=f"worst {100 * value:+.3f} %")


def _off(ours: float, other: float) -> float:
    return ours / other - 1 if other else float("inf")


def _links(report: Report, here: Sequence[str], after: Moment) -> None:
    """Single links, as totals: ours must be those of nvidia-smi, give or take what idle links exchange."""
    wrong: list[str] = []
    count = 0
    for uuid in here:
        for way in WAYS:
            found = after.scrape.find(f"nvlink_link_{way}_bytes_total", uuid=uuid)
            ours = {int(told["link"]): value for told, value in found}
            theirs = after.links[uuid][way]
            count += len(theirs)
            if set(ours) != set(theirs):
                wrong.append(f"{uuid} {way}: links {sorted(ours)} here, {sorted(theirs)} there")
            wrong += [
                f"{uuid} {way} link {link}: {ours[link]:.0f} here, {theirs[link]} there"
                for link in sorted(set(ours) & set(theirs))
                if abs(ours[link] - theirs[link]) > LINK_SLACK
            ]
    report.note(link_differences=wrong)
    told = f"{count} counters" + (f", {len(wrong)} differ: {'; '.join(wrong[:2])}" if wrong else "")
    report.check(
        "traffic: bytes of every single link as in nvidia-smi", ok=not wrong and count > 0, told=told
    )
