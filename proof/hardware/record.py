"""record: recordings of this machine at rest and under traffic, with no name of it left in them."""

import argparse
import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, tail
from proof.hardware.smi import smi, uuids

WITHIN = 240.0
_SHORTEST = 4
"""Names shorter than this occur by chance; nothing could be proved."""


def run(report: Report, _options: argparse.Namespace) -> None:
    gpus = len(uuids())
    names = secrets()
    short = sorted(kind for text, kind in names.items() if len(text) < _SHORTEST)
    report.note(gpus=gpus, names_looked_for=len(names) - len(short), too_short_to_look_for=short)
    stem = f"{product()}x{gpus}"
    failed = _take(report, f"{stem}-idle", names, gpus, moments=3, note="idle")
    note = "peer copies in a ring" if gpus > 1 else "matrix products and copies within the GPU"
    try:
        with Job("ring", "--loop") as job:
            job.wait("READY", 240)
            failed |= _take(report, f"{stem}-traffic", names, gpus, moments=4, note=note)
            job.must_run()
    except KitError as error:
        report.check("recording under traffic", ok=False, told=str(error))
    report.note(failed=failed)


def product() -> str:
    """The first GPU's product without its maker: `h100` of `NVIDIA H100 80GB HBM3`."""
    name = smi("--query-gpu=name", "--format=csv,noheader").splitlines()[0]
    return name.removeprefix("NVIDIA").split()[0].lower()


def secrets() -> dict[str, str]:
    """What must not be in a recording: text to what it is."""
    found: dict[str, str] = {}
    for line in smi("--query-gpu=uuid,serial", "--format=csv,noheader").splitlines():
        for kind, text in zip(("UUID", "serial"), line.split(","), strict=False):
            bare = text.strip().removeprefix("GPU-")
            found[bare] = kind
    found[socket.gethostname()] = "host name"
    boot = Path("/proc/sys/kernel/random/boot_id")
    found[boot.read_text("ascii").strip() if boot.exists() else ""] = "boot id"
    for place in Path("/sys/class/net").glob("*/address"):
        found[place.read_text("ascii", "replace").strip()] = "network address"
    blank = re.compile(r"[\[\]0:.\-]*|\[?N/A\]?|localhost")
    return {text: kind for text, kind in found.items() if not blank.fullmatch(text)}


def _take(report: Report, name: str, names: dict[str, str], gpus: int, *, moments: int, note: str) -> bool:
    """Record, check and pack one folder; True when a limit failed."""
    folder = report.out / name
    if folder.exists():
        shutil.rmtree(folder)
    command = [sys.executable, "-m", "wirewatch", "record", str(folder)]
    command += ["--moments", str(moments), "--every", "5", "--note", note]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
    told = tail(done.stderr + done.stdout, 1500)
    if not report.check(f"{name}: recorded", ok=done.returncode == 0, told=told):
        return True
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    whole = manifest["gpus"] == gpus > 0 and len(manifest["moments"]) == moments
    told = f"{manifest['gpus']} GPUs, {len(manifest['moments'])} moments, {manifest['lines']} answers"
    good = report.check(f"{name}: every GPU and every moment is in it", ok=whole, told=told)
    left = leaks(folder, names)
    looked = sum(len(text) >= _SHORTEST for text in names)
    told = "; ".join(left[:5]) or f"{looked} names looked for"
    good &= report.check(f"{name}: no name of this machine is left in it", ok=not left, told=told)
    pack(folder)
    return not good


def leaks(folder: Path, names: dict[str, str]) -> list[str]:
    """Where a name stands in the unpacked content, by kind and by the text around it."""
    found: list[str] = []
    for place in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = place.read_bytes()
        text = (gzip.decompress(data) if place.suffix == ".gz" else data).decode("utf-8", "replace")
        for name, kind in names.items():
            # A host name may be a common word: only whole words are its own.
            edge = r"(?<![0-9A-Za-z_-])" if kind == "host name" else ""
            match = re.search(edge + re.escape(name) + edge.replace("<", ""), text, re.IGNORECASE)
            if match and len(name) >= _SHORTEST:
                around = text[max(0, match.start() - 80) : match.start()].rsplit("\n", 1)[-1]
                found.append(f"{kind} in {place.name} after {around!r}")
    return found


def pack(folder: Path) -> None:
    """One archive beside the folder, which goes away."""
    with tarfile.open(folder.with_name(f"{folder.name}.tar.gz"), "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    shutil.rmtree(folder)
