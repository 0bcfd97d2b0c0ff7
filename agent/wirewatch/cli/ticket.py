"""One finding as plain text for a vendor's ticket: a title, keys with values, a table of numbers. ASCII."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from wirewatch.core.types import Subject

GB, MHZ, MILLI, SMALL = 1e9, 1e6, 1e-3, 0.1
WIDTH, KEY = 110, 20
"""Characters of a line, and of a key."""
LABELS: Mapping[str, str] = {
    "serial": "serial number",
    "uuid": "UUID",
    "board_part_number": "board part number",
    "pci_address": "slot (PCI address)",
    "pci_path": "PCI path",
    "numa_node": "NUMA node",
    "module_id": "module id",
    "vbios": "VBIOS",
    "inforom": "InfoROM image",
    "gsp_firmware": "GSP firmware",
    "link": "NVLink",
    "link_goes_to": "other end",
    "psid": "PSID (board id)",
    "node_guid": "node GUID",
    "network_interfaces": "network interfaces",
    "link_layer": "link layer",
}
OF_NODE: Mapping[str, str] = {
    "product": "GPUs of the node",
    "gpus": "number of GPUs",
    "nvml": "NVML",
    "cuda_driver": "CUDA driver",
    "mlx5_core": "mlx5_core",
    "source": "read from",
}
KINDS: Mapping[str, str] = {
    "gpu": "GPU", "network_device": "network card", "pci_device": "PCI device", "node": "this node",
}  # fmt: skip
SOURCES: Mapping[str, str] = {
    "live": "this machine", "replay": "a recording: no evidence of this machine",
    "synthetic": "a recording that was changed: no evidence of any machine",
}  # fmt: skip
PREFIX, TIME = "wirewatch_", "unix seconds"
HEADER = ("metric", "this part", "peers min", "median", "max", "peers")


def ticket(document: Mapping[str, Any]) -> str:
    """The text of a document `wirewatch.finding/1`."""
    return "\n".join(_ascii(line) for line in _lines(document))


def _ascii(text: str) -> str:
    """What people said may be any text; a line of a ticket is printable ASCII."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    finding = document["finding"]
    what = f"{finding['health'].upper()} {finding['rule']}, {_place(finding)}"
    yield f"wirewatch finding {finding['id']}: {what}"
    yield ""
    for key, value in _told(document):
        yield from _entry(key, value)
    yield ""
    yield from _entry("part", f"{KINDS[document['kind']]} {_index(finding)}".rstrip())
    yield from _facts(document["part"], LABELS)
    yield ""
    source = SOURCES.get(document["source"], document["source"])
    yield from _facts({**document["node"], "source": {"value": source, "unknown": None}}, OF_NODE)
    yield ""
    yield from _numbers(document)


def _place(finding: Mapping[str, Any]) -> str:
    return str(Subject.of(finding["subject"]))


def _index(finding: Mapping[str, Any]) -> str:
    return str(finding["subject"].get("gpu", ""))


def _told(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    finding = document["finding"]
    ready = "the next job may start" if document["job_ready"] else "no job may start"
    yield "told at", utc(document["at"])
    yield "rule", finding["rule"]
    yield "health", finding["health"].upper()
    yield "health of the node", f"{document['health'].upper()}, {ready}"
    yield "stage", finding["stage"]
    yield "measured now", (document["measured"] or "not found now").upper()
    yield "evidence", finding["evidence"]
    yield "action", finding["action"]
    yield "since", utc(finding["since"])
    yield "last seen", _seen(document)
    yield "came", "once" if finding["times"] == 1 else f"{finding['times']} times"
    for word, end in (
        ("acknowledged", ""),
        ("suppressed", f" until {utc(finding['suppressed_until'])}" if finding["suppressed"] else ""),
    ):
        said = finding[word]
        yield word, f"by {said['by']} at {utc(said['at'])}{end}: {said['why']}" if said else "no"


def _seen(document: Mapping[str, Any]) -> str:
    seen = document["last_seen"]
    if seen is None:
        return "not known: not since the agent started"
    over = document["measured"] is None and not document["finding"]["last"]
    return f"{utc(seen)} at the latest" if over else utc(seen)


def utc(at: float) -> str:
    """Unix seconds as UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else "never"


def _facts(facts: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> Iterator[str]:
    for name, fact in facts.items():
        value = fact["value"] if fact["value"] is not None else f"not known: {fact['unknown']}"
        yield from _entry(labels.get(name, name.replace("_", " ")), value)


def _entry(key: str, value: str) -> Iterator[str]:
    """A key with its value, broken into lines between words."""
    text = " ".join(value.split())
    lines = textwrap.wrap(text, WIDTH - KEY, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield f"{key if number == 0 else '':<{KEY}}{line}"


def _numbers(document: Mapping[str, Any]) -> Iterator[str]:
    by = document["collector"]
    if not document["numbers"]:
        yield from _entry("numbers", f"not known: {document['numbers_unknown']}")
        return
    at = "" if document["numbers_at"] is None else f" at {utc(document['numbers_at'])}"
    yield f"numbers of the collector `{by}`{at}:"
    told = document["numbers"]
    compared = [one for one in told if one["peers"] is not None and not _nothing(one)]
    if compared:
        yield from _table([HEADER, *map(_row, compared)])
    alone: dict[str, list[Sequence[str]]] = {}
    for one in told:
        if one["peers"] is None:
            row = (_name(one), amount(one["value"], one["unit"]))
            alone.setdefault(one["peers_unknown"], []).append(row)
    for why, rows in alone.items():
        yield f"without peers: {why}"
        yield from _table(rows)
    yield from _entry("0 here and at peers", _in_short([one for one in told if _nothing(one)]))


def _nothing(one: Mapping[str, Any]) -> bool:
    peers = one["peers"]
    zero = one["value"] == 0 and peers is not None and peers["min"] == peers["max"] == 0
    return zero and one["unit"] != TIME


def _in_short(ones: Sequence[Mapping[str, Any]]) -> str:
    """Names, each with the values of its labels in brackets."""
    found: dict[str, list[str]] = {}
    for one in ones:
        found.setdefault(_plain(one), []).append("/".join(one["labels"].values()))
    return ", ".join(f"{name} ({', '.join(told)})" if any(told) else name for name, told in found.items())


def _plain(one: Mapping[str, Any]) -> str:
    return str(one["name"]).removeprefix(PREFIX)


def _name(one: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in one["labels"].items())
    return f"{_plain(one)}{{{labels}}}" if labels else _plain(one)


def _row(one: Mapping[str, Any]) -> Sequence[str]:
    """Of a number that has peers."""
    peers, unit = one["peers"], one["unit"]
    mine = "(none named)" if one["value"] is None else amount(one["value"], unit)
    values = (amount(peers[name], unit) for name in ("min", "median", "max"))
    every = "all " if one["value"] is None else ""
    return (_name(one), mine, *values, f"{every}{peers['count']} {peers['of']}")


def amount(value: float, unit: str) -> str:
    """A number with its unit, for people."""
    if unit == TIME:
        return utc(value)
    if unit == "seconds":
        return f"{value / MILLI:.3f} ms" if 0 < value < SMALL else f"{value:.1f} s"
    scaled = {"bytes per second": (GB, "GB/s"), "bytes": (GB, "GB"), "hertz": (MHZ, "MHz")}
    if unit in scaled:
        by, word = scaled[unit]
        return f"{value / by:.3f} {word}" if by == GB else f"{value / by:.0f} {word}"
    words = {"watts": " W", "degrees celsius": " C", "ratio": ""}
    return (
        f"{value:.10g}{words.get(unit, '')}" if value == int(value) else f"{value:.4g}{words.get(unit, '')}"
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column and the last of all to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(w) if i in {0, len(HEADER) - 1} else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )  # fmt: skip
        yield f"  {'  '.join(cells)}".rstrip()
