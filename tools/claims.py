"""The ledger of claims: each says what all of its runs gave, those that failed included. `make generated`.

proof/claims/claims.toml has the claims and the limits that moved, proof/claims/runs the runs, a file each.
A link of a page to `claims.md#NAME` gets its text from here, so that a new run changes every page by itself.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tests.node.products.rows import ROWS
from tools.prose import ROOT, formatted, listed

FOLDER = ROOT / "proof" / "claims"
PAGE, CLAIMS, RUNS = FOLDER / "claims.md", FOLDER / "claims.toml", FOLDER / "runs"
MUTANTS = ROOT / "proof" / "mutants"
COURSES = ROOT / "docs" / "faults.md"
FLEETS = ROOT / "proof" / "fleet" / "scrape" / "results.json"
LINK = re.compile(r"\[([^\[\]]*)\]\(((?:[^()\s]*/)?claims\.md)#([a-z0-9-]+)\)")
Z = 1.96
"""Standard deviations on either side of 95 %."""


class Strict(BaseModel):
    """A value of the ledger; a key that nobody reads is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(Strict):
    """The result of a run for one claim. `shape` names the trial; `lost` says how the other tries ended.

    `amount`: how much was taken from what should be found, lowest and highest. `values`: what was measured.
    Without tries and values the run tried it, and its figures were not kept: `note` says so.
    """

    claim: str
    shape: str
    tries: int | None = Field(default=None, ge=0)
    right: int | None = Field(default=None, ge=0)
    lost: str = ""
    amount: tuple[float, float] | None = None
    values: tuple[float, ...] = ()
    note: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.tries is None) != (self.right is None) or (self.right or 0) > (self.tries or 0):
            raise ValueError(f"{self.claim}: {self.right} of {self.tries}")
        if self.right != self.tries and not self.lost:
            raise ValueError(f"{self.claim}: {self.right} of {self.tries}: `lost` says how")
        if self.tries is None and not self.values and not self.note:
            raise ValueError(f"{self.claim}: neither tries nor values: `note` says why")
        return self


class Check(Strict):
    """A limit as the kit printed it."""

    part: str
    name: str
    ok: bool
    told: str = ""


class Run(Strict):
    """A run or a day of runs. `cards`: like "2 H200", empty without GPUs. `source`: the page about it.

    `transcribed`: the figures were taken from that page, since the raw results were not kept; `commit` is the
    tree that ran, of a transcribed run the commit that brought the page.
    """

    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    commit: str
    cards: tuple[str, ...] = ()
    machine: str = ""
    source: str = ""
    transcribed: bool = False
    commands: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    checks: tuple[Check, ...] = ()
    path: str = Field(default="", exclude=True)


class Claim(Strict):
    """`says`: the sentence, with the fields of `Sum`; `about`: what counts as right."""

    says: str
    about: str
    unit: str = ""


class Moved(Strict):
    """A value that a limit had until a commit, and why it has it no more; `effect`: by it, today's runs."""

    value: float
    until: str
    commit: str
    why: str


class Limit(Strict):
    """A limit that moved: `at` is where the code has its value, in units of `scale`, as `module:NAME` or
    `module:NAME().attribute`."""

    about: str
    at: str
    now: float
    unit: str
    scale: float = 1.0
    was: tuple[Moved, ...]
    of: tuple[str, ...]
    effect: str = ""

    def in_code(self) -> float:
        """The value that the code has now."""
        module, _, names = self.at.partition(":")
        value: Any = import_module(module)
        for name in names.split("."):
            value = getattr(value, name.removesuffix("()"))
            value = value() if name.endswith("()") else value
        return float(value) / self.scale

    @property
    def said(self) -> str:
        old = "; ".join(f"{_value(one.value)} {self.unit} until {one.until}" for one in self.was)
        return f"{_value(self.now)} {self.unit} ({old})"


class Book(Strict):
    """The content of claims.toml."""

    claims: Mapping[str, Claim]
    limits: Mapping[str, Limit]


@dataclass(frozen=True, slots=True)
class Sum:
    """All results of a claim."""

    found: Sequence[tuple[Run, Result]]

    def fields(self) -> Mapping[str, str]:
        """Return the values that a sentence may use, by name."""
        tries, right = self.tries
        values = [value for _, one in self.found for value in one.values]
        amounts = [value for _, one in self.found for value in one.amount or ()]
        dates = [run.date for run, _ in self.found]
        return {
            "tries": f"{tries:,}", "right": f"{right:,}", "lost": f"{tries - right:,}",
            "share": _percent(right / tries) if tries else "-",
            "low": _value(min(values, default=math.nan)), "high": _value(max(values, default=math.nan)),
            "least": _value(min(amounts, default=math.nan)), "most": _value(max(amounts, default=math.nan)),
            "cards": cards(run for run, _ in self.found), "first": min(dates), "last": max(dates),
        }  # fmt: skip

    @property
    def tries(self) -> tuple[int, int]:
        """How many tries, and how many of them were right."""
        return sum(one.tries or 0 for _, one in self.found), sum(one.right or 0 for _, one in self.found)


def wilson(right: int, tries: int) -> tuple[float, float]:
    """The interval in which the true share lies with 95 % confidence."""
    if not tries:
        return 0.0, 1.0
    share, spread = right / tries, Z * Z / tries
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = ((middle + way * half) / (1 + spread) for way in (-1, 1))
    return low if right else 0.0, high if right < tries else 1.0


def cards(runs: Iterable[Run]) -> str:
    """The GPUs of runs by product, like `1, 2 and 4 H200, 2 H100`."""
    counts: dict[str, set[str]] = {}
    for one in (one for run in runs for one in run.cards):
        count, _, product = one.partition(" ")
        counts.setdefault(product, set()).add(count)
    return ", ".join(f"{_and(sorted(counts[name], key=int))} {name}" for name in sorted(counts, reverse=True))


def _faults() -> int:
    """Return the number of faults with a section on the page of `make faults`."""
    played = COURSES.read_text("utf-8").partition("\n## Each fault\n")[2]
    return len(re.findall(r"^### ", played, re.MULTILINE))


def _largest() -> int:
    nodes: list[int] = [one["nodes"] for one in _read(FLEETS)]
    return max(nodes)


@cache
def book() -> Book:
    """The claims and limits, each limit as the code has it."""
    made = Book.model_validate(tomllib.loads(CLAIMS.read_text("utf-8")))
    kept(made.limits)
    return made


def kept(limits: Mapping[str, Limit]) -> None:
    """Compare limits with those of the code.

    Raises:
        ValueError: one moved, and its old value is not written down.
    """
    for name, limit in limits.items():
        if not math.isclose(limit.in_code(), limit.now):
            raise ValueError(f"{name}: {limit.at} is {limit.in_code()}: {limit.now} belongs to `was` now")


@cache
def runs() -> tuple[Run, ...]:
    """All runs, the oldest first, and the scores of mutants as runs."""
    made = [_run(path, _read(path)) for path in RUNS.glob("*.json")]
    made += [_run(path, _score(_read(path))) for path in MUTANTS.glob("*.json")]
    return tuple(sorted(made, key=lambda run: (run.date, run.path)))


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _run(path: Path, values: Mapping[str, Any]) -> Run:
    return Run.model_validate({**values, "path": path.relative_to(ROOT).as_posix()})


def _score(score: Mapping[str, Any]) -> Mapping[str, Any]:
    """A drawing of mutants as a run: each room is a shape."""
    results = [
        {
            "claim": "mutants", "shape": room, "tries": one["tried"], "right": one["killed"],
            "lost": "survived" if one["killed"] < one["tried"] else "",
        }
        for room, one in score["rooms"].items()
    ]  # fmt: skip
    machine = f"seed {score['seed']}"
    return {"date": score["date"], "commit": score["commit"], "machine": machine, "results": results}


COUNTED: Mapping[str, tuple[Callable[[], str], str]] = {
    "faults": (
        lambda: f"{_faults()} faults",
        "faults of which docs/faults.md shows the course",
    ),
    "products": (lambda: f"{len(ROWS)} products", "rows of docs/products.md"),
    "cards": (lambda: cards(runs()), "GPUs of all runs below"),
    "largest-fleet": (lambda: f"{_largest():,} nodes", "proof/fleet/scrape/results.json"),
}
"""Figures that the tree itself has, by name: what makes the text, and where the figure is from."""


def sums() -> Mapping[str, Sum]:
    """Each claim that some run has tried, in the order of claims.toml.

    Raises:
        ValueError: a run speaks of a claim that there is not.
    """
    found: dict[str, list[tuple[Run, Result]]] = {name: [] for name in book().claims}
    for run in runs():
        for one in run.results:
            if one.claim not in found:
                raise ValueError(f"{run.path}: no claim is named {one.claim!r}")
            found[one.claim].append((run, one))
    return {name: Sum(some) for name, some in found.items() if some}


def said(name: str) -> str:
    """Return the text of a link to this place of the ledger.

    Raises:
        KeyError: no claim with runs, limit or count has this name.
    """
    if name in COUNTED:
        return COUNTED[name][0]()
    if name in book().limits:
        return book().limits[name].said
    return book().claims[name].says.format_map(sums()[name].fields())


def linked(text: str) -> str:
    """The text of a page in which each link to the ledger reads as it is said now."""
    return LINK.sub(lambda found: f"[{said(found[3])}]({found[2]}#{found[3]})", text)


def files() -> Mapping[Path, str]:
    """The page of the ledger, and every page that links to it."""
    made = {PAGE: page()}
    for path in listed("*.md"):
        text = path.read_text("utf-8")
        if path != PAGE and LINK.search(text):
            new = linked(text)
            made[path] = formatted(new) if new != text and _wrapped(path) else new
    return made


def _wrapped(path: Path) -> bool:
    return not path.relative_to(ROOT).as_posix().startswith("proof/hardware/2")


def page() -> str:
    """proof/claims/claims.md."""
    return formatted("\n".join(_lines()))


def _lines() -> Iterator[str]:
    yield "# Claims\n"
    yield "This page has each figure that README or the first paragraph of a page claims, with all runs that"
    yield "tried it. A run that failed counts like any other, also where the fault was mended afterwards."
    yield "`make generated` writes the page and the text of every link to it, from"
    yield "[claims.toml](claims.toml) and a file for each run in [runs](runs).\n"
    yield "*95 %* is the interval by Wilson's formula in which the true share lies with that confidence, if"
    yield "each try is drawn by itself. Tries on one machine are not, so that the true interval is wider."
    yield "*Commit* is the tree that ran. *Transcribed* are figures whose raw results were not kept: they"
    yield "were taken from the linked page, and the commit is the one that brought it.\n"
    yield "| claim | n | lost | 95 % | cards | dates |"
    yield "| -- | -- | -- | -- | -- | -- |"
    for name, total in sums().items():
        of = total.fields()
        counts = (of["tries"], of["lost"], _interval(*total.tries[::-1])) if total.tries[0] else ("", "", "")
        days = of["first"] if of["first"] == of["last"] else f"{of['first']} to {of['last']}"
        yield f"| [{_plain(name)}](#{name}): {said(name)} | {' | '.join(counts)} | {of['cards']} | {days} |"
    for name, total in sums().items():
        yield from _section(name, total)
    yield "\n## Limits that moved\n"
    for name, limit in book().limits.items():
        yield f"### {_plain(name)}\n\n{limit.about}: **{limit.said}**. {limit.effect}\n"
        for one in limit.was:
            yield f"- {_value(one.value)} {limit.unit} until {one.until} (commit {one.commit}): {one.why}"
    yield "\n## Counted in the tree\n"
    for name, (_, about) in COUNTED.items():
        yield f"### {_plain(name)}\n\n{said(name)}: {about}.\n"


def _section(name: str, total: Sum) -> Iterator[str]:
    claim = book().claims[name]
    yield f"\n## {_plain(name)}\n\n**{said(name)}.** {claim.about}\n"
    for limit in (one for one in book().limits.values() if name in one.of):
        yield f"- Limit: {limit.about}: {limit.said}. {limit.effect}"
    counted, measured = total.tries[0] > 0, any(one.values for _, one in total.found)
    head = ("date", "commit", "cards", "tried", *(("right", "95 %") if counted else ()))
    head = (*head, *((claim.unit,) if measured else ()), "losses and remarks", "data")
    yield f"\n| {' | '.join(head)} |"
    yield "| -- " * len(head) + "|"
    for run, one in total.found:
        tries, right = one.tries or 0, one.right or 0
        counts = (f"{right:,} of {tries:,}", _interval(right, tries)) if one.tries else ("not kept", "")
        values = " to ".join(map(_value, _ends(one.values)))
        row = [run.date, run.commit, ", ".join(run.cards) or run.machine, _shape(one)]
        row += [*(counts if counted else ()), *((values,) if measured else ())]
        yield f"| {' | '.join([*row, '; '.join(filter(None, (one.lost, one.note))), _data(run)])} |"


def _shape(one: Result) -> str:
    return f"{one.shape}; {' to '.join(map(_value, _ends(one.amount)))} % lost" if one.amount else one.shape


def _ends(values: Sequence[float]) -> Sequence[float]:
    """The lowest and the highest, or the only one."""
    return sorted({min(values), max(values)}) if values else ()


def _data(run: Run) -> str:
    data = f"[data]({os.path.relpath(ROOT / run.path, FOLDER)})"
    page = f"[{'transcribed' if run.transcribed else 'page'}]({os.path.relpath(ROOT / run.source, FOLDER)})"
    return f"{data}, {page}" if run.source else data


def _plain(name: str) -> str:
    """A heading whose place GitHub names like the claim."""
    return name.replace("-", " ").capitalize()


def _interval(right: int, tries: int) -> str:
    low, high = wilson(right, tries)
    return f"{_percent(low)} to {_percent(high)}"


def _percent(share: float) -> str:
    """A share for people, with more digits near 0 and 1; one that is not whole never reads 0 or 100 %."""
    percent = 100 * share
    rest = min(percent, 100 - percent)
    digits = 0 if rest in {0, 100} or rest >= 10 else 1 if rest >= 1 else 2
    return f"{min(max(percent, 0.01), 99.99) if 0 < share < 1 else percent:.{digits}f} %"


def _value(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
