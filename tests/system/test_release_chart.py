"""The chart as it is released: by Helm's own engine, the same each time, in a layout that fits it."""

import json
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from tools.chart.helm import complaints
from tools.release import chart
from tools.release.source import Source

pytestmark = pytest.mark.system
THE = Source("1.2.3", "0a" * 20, 1795450000)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return chart.package(THE, tmp_path)


def test_it_is_the_same_each_time(packed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    assert chart.package(THE, again).read_bytes() == packed.read_bytes()
    first, second = (chart.layout(THE, packed, folder) for folder in (tmp_path, again))
    assert first.read_bytes() == second.read_bytes()


def test_it_is_a_chart_with_all_that_the_folder_has(packed: Path) -> None:
    assert complaints({}, packed) == []
    with tarfile.open(packed) as archive:
        entries = archive.getmembers()
    assert entries[0].name == "wirewatch/Chart.yaml"
    assert {entry.mtime for entry in entries} == {THE.epoch}
    here = {path.relative_to(chart.CHART).as_posix() for path in chart.CHART.rglob("*") if path.is_file()}
    assert {entry.name.removeprefix("wirewatch/") for entry in entries} == here - {"README.in.md"}


def test_every_blob_of_the_layout_is_what_its_name_says(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(chart.layout(THE, packed, tmp_path)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        data = {name: file.read() for name, file in files.items() if file}
    assert json.loads(data["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    blobs = {name.rpartition("/")[2]: text for name, text in data.items() if name.startswith("blobs/sha256/")}
    assert all(sha256(text).hexdigest() == digest for digest, text in blobs.items())
    (index,) = json.loads(data["index.json"])["manifests"]
    manifest = json.loads(blobs[index["digest"].removeprefix("sha256:")])
    (layer,) = manifest["layers"]
    assert blobs[layer["digest"].removeprefix("sha256:")] == packed.read_bytes()
    assert json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])["name"] == "wirewatch"
    assert (
        index["annotations"]["org.opencontainers.image.ref.name"]
        == manifest["annotations"]["org.opencontainers.image.version"]
    )
