"""The committed results of each draw, and proof/mutants.md made of them."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tools.mutants import rooms
from tools.mutants.site import Site, one_line
from tools.mutants.trial import End, Tried
from tools.prose import formatted

EXPLAINED = Path(__file__).with_name("equivalent.toml")
GOAL_OF_JUDGES, GOAL = 0.9, 0.9
"""The least lower bound in a room that judges, and the least score in any other."""
HEAD = """\
# Mutants

Made by `make mutants`. A mutant is one small fault, made from the syntax tree. A conjunct or an `else` is
dropped, a return past a guard, `min` stands for `max`, a limit or a comparison is moved, an answer is always
the same, a statement or a lock is left out. A seed draws them: 150 from each room that judges, 40 from each
other. Each is put into a copy of the tree alone, and the tests that run its line must fail. Coverage says
which lines the tests run; this page says which faults they notice.

The first score of a seed is the honest figure: nobody had seen its mutants. Survivors are then killed by a
test of the guard, or explained in `tools/mutants/equivalent.toml`. Each release draws a new seed.
"""


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test noticed at first. `now`: the test that notices it since, or an empty text."""

    room: str
    path: str
    line: int
    kind: str
    key: str
    end: str
    now: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """Mutants of a room that were tried, and those that died at first."""

    tried: int
    killed: int


@dataclass(frozen=True, slots=True)
class Draw:
    """The mutants of one seed at first, by room, and what survived, with the tests that kill it since."""

    seed: int
    date: str
    commit: str
    rooms: Mapping[str, Count]
    survivors: Sequence[Survivor]

    @classmethod
    def of(cls, seed: int, commit: str, tried: Sequence[Tried], before: "Draw | None") -> "Draw":
        """Return a draw; rooms that were not drawn this time are kept from before."""
        fresh = {one.room for one in tried}
        counts = {room: _count([one for one in tried if one.room == room]) for room in sorted(fresh)}
        survivors = [_survivor(one) for one in tried if not one.dead]
        if before:
            counts = {**before.rooms, **counts}
            survivors = [*(one for one in before.survivors if one.room not in fresh), *survivors]
        return cls(seed, datetime.now(UTC).date().isoformat(), commit, counts, survivors)

    def surviving(self, root: Path) -> dict[str, list[Site]]:
        """Return today's places of what still survives; a place that is gone is left out."""
        wanted = {(one.room, one.key) for one in self.survivors if not one.now}
        return {
            room: [site for site in rooms.of_files(root, files) if (room, site.key) in wanted]
            for room, files in rooms.rooms(root).items()
        }

    def tried_again(self, tried: Sequence[Tried]) -> "Draw":
        """Return the draw with the tests that kill now."""
        living = {(one.room, one.site.key) for one in tried if not one.dead}
        by = {(one.room, one.site.key): one.by or one.end.value for one in tried if one.dead}
        survivors = [
            one if one.now or (one.room, one.key) in living
            else replace(one, now=by.get((one.room, one.key), "the code is gone"))
            for one in self.survivors
        ]  # fmt: skip
        return replace(self, survivors=survivors)


def load(folder: Path) -> list[Draw]:
    """Return the committed draws, the oldest first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        value = json.loads(path.read_text("utf-8"))
        counts = {room: Count(**count) for room, count in value["rooms"].items()}
        survivors = [Survivor(**one) for one in value["survivors"]]
        found.append(Draw(value["seed"], value["date"], value["commit"], counts, survivors))
    return sorted(found, key=lambda draw: draw.date)


def save(folder: Path, draw: Draw) -> None:
    """Write the results of a draw."""
    folder.mkdir(exist_ok=True)
    (folder / f"{draw.seed}.json").write_text(json.dumps(asdict(draw), indent=1) + "\n", "utf-8")


def interval(dead: int, tried: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, share = 1.96, dead / tried
    middle = (share + z * z / (2 * tried)) / (1 + z * z / tried)
    half = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried)) / (1 + z * z / tried)
    return max(0.0, middle - half), min(1.0, middle + half)


def explained() -> Mapping[str, str]:
    """Return the reasons why mutants change nothing that a user could see, by their keys."""
    with EXPLAINED.open("rb") as file:
        return {one_line(one["mutant"]): one["why"] for one in tomllib.load(file).get("equivalent", [])}


def page(draws: Sequence[Draw]) -> str:
    """Return proof/mutants.md."""
    parts = [HEAD, *(line for draw in reversed(draws) for line in (*_summary(draw), ""))]
    return formatted("\n".join((*parts, *_survivors(draws), *_equivalents(draws), "")))


def _summary(draw: Draw) -> Iterator[str]:
    why = explained()
    yield f"## Seed {draw.seed}, {draw.date}, commit {draw.commit}\n"
    heads = (
        "room",
        "mutants",
        "equivalent",
        "dead at first",
        "score, 95 % interval",
        "alive when last tried",
        "goal",
    )
    yield f"| {' | '.join(heads)} |"
    yield "| -- | -- | -- | -- | -- | -- | -- |"
    for room in sorted(draw.rooms, key=lambda name: (name not in rooms.JUDGES, name)):
        count = draw.rooms[room]
        equal = sum(one.room == room and one.key in why for one in draw.survivors)
        living = sum(one.room == room and one.key not in why and not one.now for one in draw.survivors)
        tried, dead = count.tried - equal, count.killed
        low, high = interval(dead, tried)
        reached = low >= GOAL_OF_JUDGES if room in rooms.JUDGES else dead / tried >= GOAL
        score = f"{dead / tried:.0%}, {low:.0%} to {high:.0%}"
        goal = "yes" if reached else "no"
        yield f"| {room} | {count.tried} | {equal} | {dead} | {score} | {living} | {goal} |"
    kinds = Counter(one.kind for one in draw.survivors if one.key not in why)
    named = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    yield f"\nSurvivors by kind: {named}."


def _survivors(draws: Sequence[Draw]) -> Iterator[str]:
    why = explained()
    living = [one for draw in draws for one in draw.survivors if not one.now and one.key not in why]
    yield f"## Alive when last tried: {len(living)}\n"
    yield "`make mutants AGAIN=--again SEED=...` tries those of a seed again, after new tests.\n"
    yield from (f"- {one.room}: `{one.path}` `{_short(one.key)}`" for one in living)


def _equivalents(draws: Sequence[Draw]) -> Iterator[str]:
    why = explained()
    yield "\n## Explained as equivalent\n"
    for one in (one for draw in draws for one in draw.survivors if one.key in why):
        yield f"- `{one.path}` `{_short(one.key)}`: {why[one.key]}"


def _short(key: str) -> str:
    text = key.replace("`", "'").replace("|", "¦")
    return text if len(text) <= 200 else f"{text[:197]}..."


def _count(tried: Sequence[Tried]) -> Count:
    return Count(len(tried), sum(one.dead for one in tried))


def _survivor(one: Tried) -> Survivor:
    site = one.site
    end = "" if one.end is End.SURVIVED else one.end.value
    return Survivor(one.room, site.path, site.line, site.kind, site.key, end)
