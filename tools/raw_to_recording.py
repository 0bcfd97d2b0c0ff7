"""How the bundled recording h200x8 came to be: a raw dump of 2026-11-21 turned into a recording.

    python -m tools.raw_to_recording RAW_FOLDER agent/wirewatch/recordings/h200x8

The dump holds every getter of eight H200s before and after 25 s of collectives, and what nvidia-smi
printed in between. It asked link-scoped fields for links 0, 1, 17 and all; for the links between, state
comes from the state getter and speed, bytes and errors from nvidia-smi's listings of the same minute.
Names were replaced in the dump already. Nothing is invented: what neither source has is left out.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wirewatch.core.ports import ALL_LINKS, Answer, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw import recording
from wirewatch.hw.nvml.protocol import absent_code

_NUMBERED = re.compile(r"nvmlDeviceGet(Temperature|TemperatureThreshold|PcieThroughput)(\d)")
_NOT_SUPPORTED = 3
_LINK_CALLS = {"State", "Version", "RemotePciInfo", "RemoteDeviceType"}
Row = tuple[str, Answer]


def _answer(entry: dict[str, Any]) -> Answer:
    us = float(entry.get("us", entry.get("lat") or 0))
    if "code" in entry or "ret" in entry:
        return Answer(absent_code(entry["code"] if "code" in entry else entry["ret"]), us)
    return Answer(entry["value"], us)


def _getters(device: dict[str, Any]) -> Iterator[Row]:
    for name, entry in device["get"].items():
        numbered = _NUMBERED.fullmatch(name)
        call = numbered[1] if numbered else name.removeprefix("nvmlDeviceGet")
        yield str(Question(call, (int(numbered[2]),) if numbered else ())), _answer(entry)
    for name, entry in device["clock"].items():
        call = "ClockInfo" if name.startswith("cur") else "MaxClockInfo"
        yield str(Question(call, (int(name[3:]),))), _answer(entry)
    for name, entry in device["ecc"].items():
        kind, *numbers = name.split("_")
        call = "TotalEccErrors" if kind == "total" else "MemoryErrorCounter"
        yield str(Question(call, tuple(map(int, numbers)))), _answer(entry)
    for name, entry in device["violation"].items():
        yield str(Question("ViolationStatus", (int(name),))), _answer(entry)
    for name, entry in device["topo"].items():
        yield str(Question("TopologyCommonAncestor", (int(name),))), _answer(entry)
    for name, entry in device["p2p"].items():
        yield str(Question("P2PStatus", tuple(map(int, name.split(":"))))), _answer(entry)
    fabric = device["c_nvmlGpuFabricInfo_v3_t"]
    info = {**fabric["struct"], "clusterUuid": bytes(fabric["struct"]["clusterUuid"]).hex()}
    yield str(Question("GpuFabricInfoV")), Answer(info, fabric["us"])


def _links(device: dict[str, Any]) -> Iterator[Row]:
    for link, entries in device["nvlink"].items():
        for name, entry in entries.items():
            if name in _LINK_CALLS:
                yield str(Question(f"NvLink{name}", (int(link),))), _answer(entry)
            else:
                call = "NvLinkCapability" if name.startswith("cap") else "NvLinkErrorCounter"
                yield str(Question(call, (int(link), int(name[3:])))), _answer(entry)
    for key, entry in device["fields"].items():
        if key.endswith(":0") and key[:-2] not in device["fields"]:
            # A bare field id is asked with scope 0: the dump asked some fields only that way.
            yield str(Question("Field", (int(key[:-2]),))), _answer(entry)
        yield str(Question("Field", tuple(map(int, key.split(":"))))), _answer(entry)


def _mig(raw: Path, index: int) -> Iterator[Row]:
    """The dump has no MIG mode; nvidia-smi of the same minute has."""
    sections = re.split(
        r"^GPU [0-9A-F:.]+$", (raw / "nvidia-smi_q.txt").read_text("utf-8"), flags=re.MULTILINE
    )
    modes = re.search(r"MIG Mode\s+Current\s+: (\w+)\s+Pending\s+: (\w+)", sections[index + 1])
    if modes:
        yield str(Question("MigMode")), Answer([int(mode == "Enabled") for mode in modes.groups()], 0.0)


def _between(raw: Path, index: int, device: dict[str, Any]) -> Iterator[Row]:
    """State, speed, bytes and errors of links 2 to 16, as the state getter and nvidia-smi gave them."""
    speeds = _listing(raw / "nvidia-smi_nvlink_s.txt", index, r"Link (\d+): ([\d.]+) GB/s")
    for (link, _), text in speeds.items():
        yield str(Question("Field", (164, link))), Answer(round(float(text) * 1000), 82.0)
        state = device["nvlink"][str(link)]["State"]
        yield str(Question("Field", (165, link))), Answer(state["value"], 86.0)
    for pattern, fields in (
        (r"Link (\d+): Data (Tx|Rx): (\d+) KiB", {"Tx": 138, "Rx": 139}),
        (r"Link (\d+): (Replay|Recovery|CRC) Errors: (\d+)", {"Replay": 161, "Recovery": 162, "CRC": 163}),
    ):
        name = "nvidia-smi_nvlink_gt_d.txt" if 138 in fields.values() else "nvidia-smi_nvlink_e.txt"
        for (link, kind), text in _listing(raw / name, index, pattern).items():
            yield str(Question("Field", (fields[kind], link))), Answer(int(text), 500.0)


def _listing(path: Path, index: int, pattern: str) -> dict[tuple[int, str], str]:
    sections = re.split(r"^GPU \d+:", path.read_text("utf-8"), flags=re.MULTILINE)
    found = (m.groups() for m in re.finditer(pattern, sections[index + 1]))
    found_by_key = {(int(g[0]), g[1] if len(g) > 2 else ""): g[-1] for g in found}
    return {key: value for key, value in found_by_key.items() if 2 <= key[0] <= 16}


def _device(raw: Path, index: int, device: dict[str, Any], moment: int) -> dict[str, Answer]:
    rows = dict(_between(raw, index, device)) if moment == 0 else {}
    rows |= dict(_getters(device)) | dict(_links(device)) | dict(_mig(raw, index))
    # The dump did not ask link-scoped fields past the last link; the state getter says where that is.
    beyond = device["nvlink"]["18"]["State"]
    rows |= {str(Question("Field", (f, 18))): _answer(beyond) for f in (164, 165)}
    if moment:
        gone = Answer(Absent(Why.MISSING, "not in the raw dump of this moment"))
        counters = (str(Question("Field", (f, n))) for f in (138, 139) for n in range(2, 17))
        rows |= dict.fromkeys(counters, gone)
    rows.pop(str(Question("Field", (ALL_LINKS,))), None)
    return {f"gpu{index}/{question}": answer for question, answer in rows.items()}


def main(raw: Path, target: Path) -> None:
    last: dict[str, Json | Absent] = {}
    rows = []
    for moment, name in enumerate(("nvml_idle.json", "nvml_after.json")):
        dump = json.loads((raw / name).read_text("utf-8"))
        answers = {
            f"{k.removeprefix('nvmlDeviceGet').removeprefix('nvml')}()": _answer(v)
            for k, v in dump["system"].items()
        }
        # The dump watched for no events; given as not supported, or a replay would wait for them.
        answers["Events()"] = Answer(absent_code(_NOT_SUPPORTED))
        for device in dump["devices"]:
            answers |= _device(raw, device["index"], device, moment)
        for question, answer in answers.items():
            if question not in last or last[question] != answer.value:
                last[question] = answer.value
                rows.append(recording.pack(moment, "nvml", question, answer))
    manifest = {
        "wirewatch": "raw dump",
        "masked": True,
        "product": "NVIDIA H200",
        "gpus": 8,
        "driver": "580.159.04",
        "source": "live",
        "note": "converted by tools/raw_to_recording.py; no sysfs and host answers were taken",
        "moments": [
            {"moment": 0, "at": 1795223090.4, "seconds": 0.0, "note": "idle"},
            {"moment": 1, "at": 1795223229.0, "seconds": 138.6, "note": "after 25 s of collectives"},
        ],
    }
    recording.write(target, manifest, rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
