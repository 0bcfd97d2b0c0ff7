"""The documents of what is installed here: the configuration, recordings, and overlays that make faults."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch.hw.overlay import Overlay, bundled_overlays, load_overlay
from wirewatch.hw.recording import bundled_names, find, read_manifest


@dataclass(frozen=True, slots=True)
class BundledRecording:
    """A recording: how many GPUs of which product, seconds from its first moment to its last.

    `source`: `live`, read on a machine as it is; `synthetic`, part of it made up. `about`: a sentence.
    """

    name: str
    gpus: int
    product: str
    driver: str
    moments: int
    seconds: float
    source: str
    about: str


@dataclass(frozen=True, slots=True)
class RecordingsDocument:
    """The recordings that come with this version."""

    schema: Literal["wirewatch.recordings/1"]
    recordings: list[BundledRecording]


@dataclass(frozen=True, slots=True)
class BundledOverlay:
    """An overlay on demo-dgx-h200; `health`: the worst of its findings that change a verdict, or null."""

    name: str
    about: str
    health: Health | None
    rules: list[str]


@dataclass(frozen=True, slots=True)
class OverlaysDocument:
    """The overlays that come with this version."""

    schema: Literal["wirewatch.overlays/1"]
    overlays: list[BundledOverlay]


Origin = Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value by its dotted key, null where nothing is set.

    `where`: the line of the file, the variable, or the option; empty for a default.
    """

    key: str
    value: Any
    origin: Origin
    where: str


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """The effective configuration; `file`: the one that was read, empty for none."""

    schema: Literal["wirewatch.config/1"]
    file: str
    values: list[ConfigValue]


RECORDINGS = TypeAdapter(RecordingsDocument)
OVERLAYS = TypeAdapter(OverlaysDocument)
CONFIGURATION = TypeAdapter(ConfigDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.recordings.1": RECORDINGS,
    "wirewatch.overlays.1": OVERLAYS,
    "wirewatch.config.1": CONFIGURATION,
}


def recordings() -> RecordingsDocument:
    """The document of all bundled recordings, by name."""
    return RecordingsDocument("wirewatch.recordings/1", [_recording(name) for name in bundled_names()])


def overlays() -> OverlaysDocument:
    """The document of all bundled overlays, by name."""
    return OverlaysDocument("wirewatch.overlays/1", [_overlay(load_overlay(n)) for n in bundled_overlays()])


def _recording(name: str) -> BundledRecording:
    manifest = read_manifest(find(name))
    moments = manifest["moments"]
    seconds = float(moments[-1]["seconds"]) - float(moments[0]["seconds"])
    return BundledRecording(
        name, int(manifest["gpus"]), str(manifest["product"]), str(manifest["driver"]), len(moments), seconds,
        str(manifest["source"]), "; ".join(_about(manifest, seconds)),
    )  # fmt: skip


def _about(manifest: dict[str, Any], seconds: float) -> Iterator[str]:
    notes = [note for note, _ in groupby(str(one.get("note", "")) for one in manifest["moments"])]
    yield f"{manifest['gpus']} {manifest['product']}, {seconds:.0f} s: {', then '.join(filter(None, notes))}"
    if manifest["source"] == "synthetic":
        yield "part of it made up"


def _overlay(overlay: Overlay) -> BundledOverlay:
    worst = max((one.health for one in overlay.findings if one.stage != "aside"), default=None)
    rules = [one.rule for one in overlay.findings]
    return BundledOverlay(overlay.name, overlay.about, None if worst is None else HEALTH_NAMES[worst], rules)
