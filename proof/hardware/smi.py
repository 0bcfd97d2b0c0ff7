"""What nvidia-smi says: the second witness."""

import re
import subprocess
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from proof.hardware.kit import KitError, tail

_UUID = re.compile(r"GPU \d+:.*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_SPEED = re.compile(r"\s*Link (\d+): ([\d.]+) GB/s")
_DATA = re.compile(r"\s*Link (\d+): Data (Tx|Rx): (\d+) KiB")


def smi(*arguments: str, within: float = 60.0) -> str:
    """Run nvidia-smi and return what it printed.

    Raises:
        KitError: missing, failed or too slow.
    """
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KitError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise KitError(f"{' '.join(command)}: status {done.returncode}: {tail(done.stdout + done.stderr)}")
    return done.stdout


def uuids() -> list[str]:
    """UUIDs of all GPUs, in order of index."""
    return _UUID.findall(smi("-L"))


def log(text: str) -> dict[str, ET.Element]:
    """The `gpu` elements of `nvidia-smi -q -x` by UUID.

    Raises:
        KitError: it is not that.
    """
    try:
        root = ET.fromstring(text)  # noqa: S314 - the driver's own tool, not a stranger's file
    except ET.ParseError as error:
        raise KitError(f"nvidia-smi -q -x is not XML: {error}: {tail(text, 300)}") from error
    return {(gpu.findtext("uuid") or "").strip(): gpu for gpu in root.findall("gpu")}


def lookup(gpu: ET.Element, candidates: Sequence[Sequence[str]]) -> list[str] | None:
    """Texts of the first candidate whose paths are all there; None when there is no such candidate."""
    for paths in candidates:
        found = [gpu.findtext(path) for path in paths]
        texts = [text.strip() for text in found if text is not None]
        if len(texts) == len(paths):
            return texts
    return None


def nearby(gpu: ET.Element, path: str) -> list[str]:
    """Names of the elements where a path stops leading on: what to look for under another name."""
    place = gpu
    for step in path.split("/"):
        deeper = place.find(step)
        if deeper is None:
            break
        place = deeper
    return [child.tag for child in place]


def _sections(text: str) -> dict[str, str]:
    """The part of a listing that belongs to each GPU, by UUID."""
    parts = _UUID.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def link_speeds(text: str) -> dict[str, dict[int, float]]:
    """`nvidia-smi nvlink -s`: GB/s by link, by UUID; links that are not active are left out."""
    return {
        uuid: {int(link): float(speed) for link, speed in _SPEED.findall(part)}
        for uuid, part in _sections(text).items()
    }


def link_bytes(text: str) -> dict[str, dict[str, dict[int, int]]]:
    """`nvidia-smi nvlink -gt d`: bytes by link, by direction (`transmit`, `receive`), by UUID."""
    names = {"Tx": "transmit", "Rx": "receive"}
    found: dict[str, dict[str, dict[int, int]]] = {}
    for uuid, part in _sections(text).items():
        found[uuid] = {"transmit": {}, "receive": {}}
        for link, way, kib in _DATA.findall(part):
            found[uuid][names[way]][int(link)] = int(kib) * 1024
    return found
