"""The chart: packaged by Helm's own engine, and as a layout of OCI that any tool of registries pushes."""

import gzip
import json
import tarfile
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import helm_python

from tools.release.source import ROOT, Source

CHART = ROOT / "helm" / "wirewatch"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def package(source: Source, folder: Path) -> Path:
    """wirewatch-VERSION.tgz, as `helm package` makes it, but with the commit's time in place of now."""
    with TemporaryDirectory() as here, helm_python.Chart.load(str(CHART)) as chart:
        made = Path(chart.save(here))
        packed = folder / made.name
        packed.write_bytes(_dated(gzip.decompress(made.read_bytes()), source.epoch))
    return packed


def layout(source: Source, packed: Path, folder: Path) -> Path:
    """wirewatch-VERSION-chart.oci.tar: an OCI layout, for `skopeo copy oci-archive:... docker://...`."""
    with helm_python.Chart.load_archive(packed.read_bytes()) as chart:
        about: dict[str, Any] = dict(chart.metadata)
    blobs = _Blobs()
    config = blobs.add(json.dumps(about, sort_keys=True).encode(), CONFIG)
    content = blobs.add(packed.read_bytes(), CONTENT)
    told = {
        "org.opencontainers.image.title": about["name"],
        "org.opencontainers.image.version": about["version"],
        "org.opencontainers.image.revision": source.revision,
        "org.opencontainers.image.created": datetime.fromtimestamp(source.epoch, UTC).isoformat(),
    }
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [content], "annotations": told,
    }  # fmt: skip
    named = {"annotations": {"org.opencontainers.image.ref.name": about["version"]}}
    index = {"schemaVersion": 2, "manifests": [blobs.add(_json(manifest), MANIFEST) | named]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs.files}
    target = folder / f"{about['name']}-{about['version']}-chart.oci.tar"
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            archive.addfile(_entry(name, len(data), source.epoch), BytesIO(data))
    return target


class _Blobs:
    """What a layout holds, by its digest."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, data: bytes, kind: str) -> dict[str, Any]:
        """Keep it; returns its descriptor."""
        digest = sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _entry(name: str, size: int, epoch: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, epoch, 0o644
    return entry


def _dated(archive: bytes, epoch: int) -> bytes:
    """The same files in the order of their names, of that time and of nobody; Helm wants Chart.yaml first."""
    made = BytesIO()
    with tarfile.open(fileobj=BytesIO(archive)) as old, tarfile.open(fileobj=made, mode="w") as new:
        entries = {entry.name: entry for entry in old if entry.isfile()}
        for name in sorted(entries, key=lambda name: (not name.endswith("/Chart.yaml"), name)):
            file = old.extractfile(entries[name])
            assert file
            new.addfile(_entry(name, entries[name].size, epoch), file)
    return gzip.compress(made.getvalue(), mtime=epoch)
