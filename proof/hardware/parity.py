"""parity: the same numbers as nvidia-smi, at rest and after a known number of bytes."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from proof.hardware import traffic
from proof.hardware.daemon import Daemon, every
from proof.hardware.items import ITEMS, Item, Value
from proof.hardware.kit import KitError, Report
from proof.hardware.scrape import Scrape
from proof.hardware.smi import link_speeds, log, lookup, nearby, smi, uuids

INTERVAL = 2.0
LOOKS = 3
LINK_GIGABYTES = 26.562
"""One NVLink of this generation, GB/s in one direction."""


def run(report: Report, _options: argparse.Namespace) -> None:
    here = uuids()
    report.note(gpus=here)
    with Daemon(every(INTERVAL, link_detail=True)) as daemon:
        _at_rest(report, daemon, here)
        if len(here) < 2:
            print("parity: one GPU, so no peer copies: the traffic comparison is left out", flush=True)
            report.note(traffic="left out: one GPU")
            return
        try:
            traffic.compare(report, daemon, here)
        except KitError as error:
            report.check("the traffic comparison could be done", ok=False, told=str(error))
            report.note(daemon_log=daemon.log())


@dataclass(frozen=True)
class Look:
    """What nvidia-smi said, and our scrapes of polls before and after it."""

    told: dict[str, ET.Element]
    before: Scrape
    after: Scrape


def _at_rest(report: Report, daemon: Daemon, here: Sequence[str]) -> None:
    looks: list[Look] = []
    for number in range(LOOKS):
        before = daemon.fresh(time.time())
        text = smi("-q", "-x")
        looks.append(Look(log(text), before, daemon.fresh(time.time())))
        if number == 0:
            (report.out / "nvidia-smi_q.xml").write_text(text, "utf-8")
    first = looks[0]
    same = sorted(first.told) == sorted(first.before.gpus()) == sorted(here)
    report.check("the same GPUs by UUID", ok=same and bool(here), told=f"{len(here)} GPUs")
    results = [_item(item, looks) for item in ITEMS]
    rows = [[r["name"], r["theirs"], r["ours"], r["agree"]] for r in results]
    report.table("at rest", ["what", "nvidia-smi", "wirewatch", "agree"], rows)
    report.note(at_rest=results)
    for result in results:
        report.check(f"at rest: {result['name']}", ok=result["ok"], told=result["why"])
    _speeds(report, link_speeds(smi("nvlink", "-s")), looks[-1].after)


def _item(item: Item, looks: Sequence[Look]) -> dict[str, Any]:
    """One comparison over all GPUs and all looks."""
    result: dict[str, Any] = {"name": item.name, "values": {}}
    wrong: list[str] = []
    agreed = 0
    for uuid in looks[0].told:
        seen = [_see(item, look, uuid, result) for look in looks]
        result["values"][uuid] = seen
        good = [one["agree"] for one in seen]
        agreed += sum(good)
        if not (any(good) if item.restless else all(good)):
            bad = seen[good.index(False)]
            there, before, after = (_few([value]) for value in (bad["theirs"], *bad["ours"]))
            wrong.append(f"{uuid}: {there} there, {before} and {after} here")
    every = [one for seen in result["values"].values() for one in seen]
    result["theirs"] = _few([one["theirs"] for one in every])
    result["ours"] = _few([value for one in every for value in one["ours"]])
    result["agree"] = f"{agreed} of {len(every)}"
    result["ok"] = bool(every) and not wrong
    result["why"] = f"{len(wrong)} of {len(looks[0].told)} GPUs: {wrong[0]}" if wrong else ""
    return result


def _see(item: Item, look: Look, uuid: str, result: dict[str, Any]) -> dict[str, Any]:
    """One comparison on one GPU in one look; notes in `result` where an element was not found."""
    ours = (item.ours(look.before, uuid), item.ours(look.after, uuid))
    gpu = look.told.get(uuid)
    texts = None if gpu is None else lookup(gpu, item.candidates)
    if texts is None:
        if gpu is not None:
            result["looked_for"] = [list(c) for c in item.candidates]
            result["there_is"] = nearby(gpu, item.candidates[0][0])
        return {"theirs": "not found in nvidia-smi", "ours": ours, "agree": False}
    theirs = item.theirs(texts)
    told = " + ".join(texts) if theirs is None else theirs
    return {"theirs": told, "ours": ours, "agree": agree(item, theirs, ours)}


def agree(item: Item, theirs: Value, ours: tuple[Value, Value]) -> bool:
    """Whether their value lies between our readings of before and after, or near enough."""
    first, second = ours
    if not (isinstance(theirs, float) and isinstance(first, float) and isinstance(second, float)):
        return theirs in ours
    slack = max(item.absolute, item.relative * abs(theirs))
    return min(first, second) - slack <= theirs <= max(first, second) + slack


def _few(values: Sequence[Any]) -> str:
    """All GPUs in one cell: the value where they have the same."""
    numbers = [v for v in values if isinstance(v, float)]
    if len(numbers) == len(values) > 0 and min(numbers) != max(numbers):
        return f"{min(numbers):g} to {max(numbers):g}"
    return ", ".join(sorted({f"{v:g}" if isinstance(v, float) else str(v) for v in values}))


def _speeds(report: Report, theirs: dict[str, dict[int, float]], scrape: Scrape) -> None:
    """NVLink: how many are active and how fast each is."""
    wrong: list[str] = []
    usual: list[str] = []
    # A virtual machine with one GPU has no NVLink: it has no peer.
    several = len(scrape.gpus()) > 1
    for uuid in scrape.gpus():
        links = theirs.get(uuid, {})
        found = scrape.find("nvlink_link_speed_bytes_per_second", uuid=uuid)
        ours = {int(told["link"]): round(value / 1e9, 3) for told, value in found}
        active = scrape.value("nvlink_links", uuid=uuid, state="active")
        if ours != links or (active or 0) != len(links):
            wrong.append(f"{uuid}: there {links}, here {ours}, {active} active")
        usual += [f"{uuid} link {n}: {v}" for n, v in links.items() if v != LINK_GIGABYTES]
        usual += [f"{uuid}: no active link"] if several and not links else []
    report.note(link_speeds=theirs)
    report.check("at rest: NVLink speeds and active links", ok=not wrong, told="; ".join(wrong[:2]))
    name = f"at rest: every link runs at {LINK_GIGABYTES} GB/s"
    report.check(name, ok=not usual, told="; ".join(usual[:4]))
