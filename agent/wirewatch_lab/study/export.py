"""A sweep for other programs: sweep.json with all of it, and sweep.csv with a row for each measurement."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from wirewatch.busbw.formulas import busbw
from wirewatch.cli.output import write_whole
from wirewatch.core.probe import PRIMITIVES
from wirewatch.core.types import NotText, utf8
from wirewatch.documents.adapter import TypeAdapter
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.records import NAME, Positive, Records, RecordsError, read_records, study_of

JSON, CSV, REPORT = "sweep.json", "sweep.csv", "report.html"
_STRICT: dict[str, object] = {"extra": "forbid", "allow_inf_nan": False}
COLUMNS = (
    "op", "ranks", "algorithm", "protocol", "launch", "registered", "settings", "dtype", "in_place",
    "size_bytes", "repeat", "seconds", "busbw_bytes_per_second", "low_seconds", "median_seconds",
    "high_seconds", "iterations", "wrong_elements", "ran",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One size of a curve: for each repeat the seconds of an operation, and its busbw in bytes per second.

    `wrong`: elements that were not what they should be, over all repeats; null where values were not checked.
    `ran`: what NCCL's log has for it, such as `Ring Simple`.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    size_bytes: Positive[int]
    seconds: list[Positive[float]]
    busbw: list[float]
    wrong: int | None
    ran: list[str]


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """One collective in one configuration; `algorithm` and `protocol` are `auto` or NCCL's names."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    op: str
    ranks: Positive[int]
    algorithm: str
    protocol: str
    launch: str
    registered: bool
    settings: dict[str, str]
    dtype: str
    in_place: bool
    points: list[SweepPoint]


@dataclass(frozen=True, slots=True)
class SweepDocument:
    """A sweep. `at`: when it began, Unix seconds. `complete`: whether all that was asked for is in it.

    `environment`: machine and software. `not_offered`: what was asked for and does not exist. `problems`:
    what went wrong.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    schema: Literal["wirewatch.sweep/1"]
    at: float
    version: str
    seed: int
    repeats: int
    complete: bool
    environment: dict[str, str]
    not_offered: list[str]
    problems: list[str]
    curves: list[SweepCurve]


SWEEP = TypeAdapter(SweepDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.sweep.1": SWEEP}


def export(records: Records, folder: Path) -> Study:
    """Write sweep.json and sweep.csv into the folder and return their study. Raises OSError."""
    study = study_of(records, str(folder))
    write_whole(folder / JSON, SWEEP.dump_json(document(records, study), indent=1).decode() + "\n")
    write_whole(folder / CSV, table(records))
    return study


def document(records: Records, study: Study) -> SweepDocument:
    """Return the document of the present measurements, and its study."""
    header = records.header
    return SweepDocument(
        schema="wirewatch.sweep/1", at=header.at, version=header.version, seed=header.seed,
        repeats=header.options.repeats, complete=records.complete, environment=dict(study.environment),
        not_offered=list(study.not_offered), problems=list(study.problems),
        curves=[_curve(curve) for curve in study.curves],
    )  # fmt: skip


def table(records: Records) -> str:
    """Return a row for each measurement, with a header."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    options = records.header.options
    for key in sorted(records.measured):
        one, curve = records.measured[key], records.header.curves[key[0]]
        wanted, in_place = curve.configuration, options.runs_in_place(curve.op)
        rows.writerow((
            curve.op, wanted.ranks, wanted.algorithm, wanted.protocol, wanted.launch, int(wanted.registered),
            " ".join("=".join(pair) for pair in wanted.settings), options.dtype, int(in_place),
            one.size_bytes, one.repeat, one.seconds,
            busbw(curve.op, wanted.ranks, one.size_bytes, one.seconds), one.low, one.median, one.high,
            one.iterations, one.wrong,
            "; ".join(sorted(records.ran.get((one.curve, one.size_bytes), ()))),
        ))  # fmt: skip
    return text.getvalue()


def read_study(path: Path) -> Study:
    """Read a sweep's folder or its sweep.json. Raises RecordsError: there is no usable sweep."""
    if path.is_dir() and ((path / NAME).exists() or not (path / JSON).exists()):
        return study_of(read_records(path), str(path))
    source, path = path, path / JSON if path.is_dir() else path
    try:
        found = SWEEP.validate_json(utf8(path.read_bytes()))
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or error}") from error
    except NotText as error:
        raise RecordsError(f"{path}: {error}") from error
    except ValidationError as error:
        said = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, said["loc"]))
        raise RecordsError(f"{path} is no {JSON} of a sweep: {where}: {said['msg']}") from error
    strange = next((curve.op for curve in found.curves if curve.op not in PRIMITIVES), None)
    if strange is not None:
        raise RecordsError(f"{path} is no {JSON} of a sweep: no operation is called {strange!r}")
    curves = tuple(_read_curve(curve) for curve in found.curves)
    return Study(
        found.at, str(source), found.environment, curves, tuple(found.not_offered), tuple(found.problems)
    )


def _curve(curve: Curve) -> SweepCurve:
    wanted = curve.configuration
    return SweepCurve(
        op=curve.op, ranks=wanted.ranks, algorithm=wanted.algorithm, protocol=wanted.protocol,
        launch=wanted.launch, registered=wanted.registered, settings=dict(wanted.settings), dtype=curve.dtype,
        in_place=curve.in_place,
        points=[
            SweepPoint(
                point.size_bytes, list(point.seconds),
                [busbw(curve.op, wanted.ranks, point.size_bytes, seconds) for seconds in point.seconds],
                point.wrong, list(point.ran),
            )
            for point in curve.points
        ],
    )  # fmt: skip


def _read_curve(curve: SweepCurve) -> Curve:
    wanted = Configuration(
        curve.ranks, curve.algorithm, curve.protocol, curve.launch, curve.registered,
        tuple(sorted(curve.settings.items())),
    )  # fmt: skip
    points = tuple(
        CurvePoint(point.size_bytes, tuple(point.seconds), point.wrong, tuple(point.ran))
        for point in curve.points
    )
    return Curve(curve.op, wanted, points, curve.dtype, curve.in_place)
