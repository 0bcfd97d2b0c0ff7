"""Writes docs/answers.md from the inputs of the tests, and from what is played of the product matrix.

`make generated` writes it. tests/tools/test_answers.py holds it: the plays take half a minute.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from proof.rehearsal.page import table
from tests.node.collectors.test_infiniband_siblings import ROWS as PORTS
from tests.node.collectors.test_xid_vendor import INPUTS
from tests.node.probe.test_bands import BANDS, FEWS, Few
from tests.node.products.plays import FAULTY, HEALTHY, Answer, answer
from tests.node.products.rows import ROWS, Row
from tests.node.products.test_cases import RIGHT
from tests.node.products.test_parts import BARS, FABRICS
from tools.prose import formatted
from wirewatch.core.types import Health

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "answers.md"
Cells = Sequence[Answer | str]
"""Of a row: first what is well, then what has a part less."""


def played(row: Row) -> Cells:
    """The answers to all that a product is played through."""
    return [answer(play, row) for play in (*HEALTHY, *FAULTY)]


def files() -> Mapping[Path, str]:
    with ProcessPoolExecutor() as pool:
        return {PAGE: page(tuple(pool.map(played, ROWS)))}


def page(cells: Sequence[Cells]) -> str:
    """The whole page."""
    rows = tuple(zip(ROWS, cells, strict=True))
    why = sorted({text for one in cells for text in reasons(one)})
    parts = {
        "well": table(head(HEALTHY), (line(row, one)[0] for row, one in rows)),
        "less": table(head(FAULTY), (line(row, one)[1] for row, one in rows)),
        "reasons": "\n".join(f"- {text}" for text in why),
        **inputs(),
    }
    text = (DOCS / "answers.in.md").read_text("utf-8")
    return formatted(re.sub(r"<!-- (\w+) -->", lambda mark: parts[mark[1]], text))


def head(plays: Sequence[object]) -> tuple[str, ...]:
    return ("product", *(str(getattr(one, "name", "")) for one in plays))


def line(row: Row, cells: Cells) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of a product in both tables."""
    told = [one if isinstance(one, str) else shown(one.health, one.reasons) for one in cells]
    name = f"`{row.id}`"
    return (name, *told[: len(HEALTHY)]), (name, *told[len(HEALTHY) :])


def shown(health: Health, rules: Iterable[str]) -> str:
    return " ".join((health.name, *(f"`{rule}`" for rule in sorted(rules) if rule)))


def reasons(cells: Cells) -> Iterator[str]:
    """The reasons of what is not known, in words that fit every product."""
    for one in cells:
        if isinstance(one, Answer) and one.health is Health.UNKNOWN:
            yield from (
                f"`{rule}`: {common(text)}" if rule else f"without a rule: {text}"
                for rule, text in one.reasons.items()
            )


def common(evidence: str) -> str:
    """An evidence without the names and numbers of one node."""
    plain = re.sub(r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d: ", "", evidence)
    plain = re.sub(r"^\d+ .*?, which", "so many GPUs, which", plain)
    return re.sub(r"\d+(?:(?:, \d+)* or \d+)?(?= of;)|\b\d+(?= links| of \d)|(?<= of )\d+", "N", plain)


def inputs() -> Mapping[str, str]:
    """The parts of the page that are made of rows alone."""
    columns = ("input", "source", "answer")
    told: Mapping[str, Iterable[tuple[str, ...]]] = {
        "log": (
            (name, " <br> ".join(map(code, one.lines)), one.source, found(one.found))
            for name, one in INPUTS.items()
        ),
        "starts": (
            (name, code(one.line.format(at="0000:20:00.0")), one.source, shown(one.health, ["gpu.missing"]))
            for name, one in BARS.items()
        ),
        "fabrics": (
            (f"{name}, `{one.row}`", one.source, shown(one.health, [one.rule] if one.health else []))
            for name, one in FABRICS.items()
        ),
        "ports": (
            (one.what, one.source, found({(rule, f"mlx5_{n}"): how for n, (rule, how) in one.right.items()}))
            for one in PORTS
        ),
        "bands": (
            *((one.what, one.source, node_wide(one.right)) for one in BANDS),
            *((f"GPUs: {one.what}", "drawn", few(one)) for one in FEWS),
        ),
        "cases": (
            (name, one.source, f"{one.worst.name}; then {shown(one.last, {rule for rule, _ in one.found})}")
            for name, one in RIGHT.items()
        ),
    }
    lined = ("input", "lines", "source", "answer")
    return {name: table(lined if name in {"log", "starts"} else columns, rows) for name, rows in told.items()}


def code(text: str) -> str:
    return f"`{text}`"


def node_wide(rules: Mapping[str, Health]) -> str:
    return found({(rule, ""): health for rule, health in rules.items()})


def found(named: Mapping[tuple[str, str], Health]) -> str:
    """The findings: each rule once with its parts."""
    rules: dict[tuple[Health, str], list[str]] = {}
    for (rule, part), health in named.items():
        rules.setdefault((health, rule), []).append(part)
    return (
        "; ".join(
            f"{health.name} `{rule}` {', '.join(parts)}".strip() for (health, rule), parts in rules.items()
        )
        or "OK"
    )


def few(one: Few) -> str:
    if one.slow:
        gpus = ", ".join(map(str, one.slow))
        return f"`straggler.{one.resource}` of GPUs {gpus}"
    return node_wide(one.right)
