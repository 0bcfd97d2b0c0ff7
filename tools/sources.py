"""Writes docs/studies/sources.md: claims of the five source documents and public runs, with our answers.

`make generated` writes it from claims.toml and runs.toml of that folder. tests/lab/test_claims.py asks every
question, and tests/lab/study/test_publicruns.py judges every run.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from proof.rehearsal.page import table
from tests.lab.study.publicruns import RUNS, PublicRun
from tools.claims import Strict
from tools.prose import ROOT, formatted
from wirewatch.core.words import GB, percent

FOLDER = ROOT / "docs" / "studies"
PAGE, CLAIMS = FOLDER / "sources.md", FOLDER / "claims.toml"
DOCUMENTS: Mapping[str, str] = {
    "000": "collectives and interconnect in serving",
    "001": "memory and communication, a primer",
    "002": "tuning NCCL for inference",
    "003": "the bandwidth cliff",
    "004": "a measured study on H100",
}
_UNITS: Mapping[str, Sequence[tuple[float, str]]] = {
    **dict.fromkeys(("rate", "printed", "busbw"), ((1e9, "GB/s"),)),
    **dict.fromkeys(("seconds", "least", "communication", "work"), ((1e-3, "ms"), (1e-6, "us"))),
    **dict.fromkeys(
        ("state", "links", "message_bytes", "size", "sends", "receives"),
        ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    ),
    "parameters": ((1e9, "billion"),),
}
"""Units of answers by what they are, the largest first."""


class SourceClaim(Strict):
    """A claim in our own words, whether it holds, and our answer; claims.toml says what each field is."""

    document: Literal["000", "001", "002", "003", "004"]
    claim: str
    holds: Literal["yes", "no", "partly"]
    ask: str = ""
    at: str = ""
    value: bool | float | None = Field(default=None, alias="is")
    within: float = 0.01
    says: str = ""
    test: str = ""
    state: Literal["right", "partly", "missing"] = "right"
    why: str = ""

    @model_validator(mode="after")
    def _answered(self) -> Self:
        shown = bool(self.ask) and (self.value is not None or bool(self.says))
        if not shown and not self.test and self.state != "missing":
            raise ValueError(f"{self.claim} nothing shows the answer")
        if self.state != "right" and not self.why:
            raise ValueError(f"{self.claim} `why` says what is missing")
        return self

    def wrong(self, answer: str) -> str:
        """What is wrong with the answer to its question, in words; empty where it is the expected one."""
        found = picked(json.loads(answer), self.at) if self.at else re.sub(r"\s+", " ", answer)
        if isinstance(self.value, bool):
            return "" if found is self.value else f"{found}, not {self.value}"
        if self.value is not None:
            near = isinstance(found, int | float) and abs(found - self.value) <= self.within * abs(self.value)
            return "" if near else f"{found}, not {self.value} within {self.within}"
        return "" if re.search(self.says, str(found)) else f"{str(found)[:200]} is without {self.says}"

    @property
    def shown(self) -> str:
        """The answer in a few words, as the page has it."""
        leaf = self.at.rpartition("/")[2].rpartition(".")[2]
        value = self.value
        if value is None:
            return ""
        if isinstance(value, bool):
            return f"{leaf}: {'yes' if value else 'no'}"
        units = _UNITS.get(leaf, ((1e6, "MB"), (1, "")))  # The largest without a name of a unit are bytes.
        scale, unit = next((one for one in units if value >= one[0]), units[-1])
        return f"{value / scale:,.4g} {unit}".rstrip()


class SourceBook(Strict):
    """The whole file: questions by name, and claims."""

    questions: Mapping[str, str]
    claim: Sequence[SourceClaim]


def book() -> SourceBook:
    """Read the file of claims. Raises ValueError: it is not of this form."""
    return SourceBook(**tomllib.loads(CLAIMS.read_text("utf-8")))


def picked(found: Any, path: str) -> Any:
    """The value at a place of a document: names and numbers between /, NAME=VALUE for those of a list."""
    for step in path.split("/"):
        name, equals, value = step.partition("=")
        if equals and isinstance(found, list):
            found = [one for one in found if str(_leaf(one, name)) == value]
        elif step.isdigit():
            found = found[int(step)]
        else:
            found = _leaf(found[0] if isinstance(found, list) else found, step)
    return found


def _leaf(found: Any, names: str) -> Any:
    for name in names.split("."):
        found = found[name]
    return found


def files() -> Mapping[Path, str]:
    """The page."""
    return {PAGE: page(book())}


def page(read: SourceBook) -> str:
    """The whole page, of the claims and the runs."""
    text = (FOLDER / "sources.in.md").read_text("utf-8")
    states = Counter(one.state for one in read.claim)
    healthy = [run for run in RUNS if not run.fault]
    parts = {
        "claims": str(len(read.claim)),
        "states": ", ".join(f"{count} {state}" for state, count in states.most_common()),
        "healthy": str(len(healthy)),
        "within": str(sum(run.within for run in healthy)),
        "faulty": str(len(RUNS) - len(healthy)),
        "tables": "\n\n".join(
            f"### {name}: {about}\n\n{_claims(one for one in read.claim if one.document == name)}"
            for name, about in DOCUMENTS.items()
        ),
        "questions": "\n".join(f"- {name}: `wirewatch {asked}`" for name, asked in read.questions.items()),
        "runs": table(
            ("run", "GB/s", "expected", "share", "answer", "fault"), (tuple(_run(run)) for run in RUNS)
        ),
        "sources": "\n".join(f"- {run.name}: {run.source}" for run in RUNS),
    }
    return formatted(re.sub(r"<!-- (\w+) -->", lambda mark: parts[mark[1]], text))


def _claims(claims: Iterable[SourceClaim]) -> str:
    rows = (
        (one.claim, one.holds, one.shown, one.ask or one.test.rpartition("::")[2], one.state, one.why)
        for one in claims
    )
    return table(("claim", "holds", "we say", "shown by", "answer", "because"), rows)


def _run(run: PublicRun) -> Iterable[str]:
    largest = max(run.answer.sizes, key=lambda one: one.point.size_bytes, default=None)
    yield run.name
    yield "" if largest is None else f"{largest.busbw / GB:.4g}"
    yield "" if largest is None else f"{largest.expected.busbw / GB:.4g}"
    yield "" if largest is None else percent(largest.ratio)
    why = run.answer.reason
    yield run.answer.health.name + (f": {why}" if why else "")
    yield run.fault
