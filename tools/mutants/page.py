"""proof/mutants.md, from what became of each mutant."""

from collections.abc import Iterator, Sequence

from tools.mutants.trial import Tried
from tools.prose import formatted

HEAD = """\
# Mutants

Made by `make mutants WRITE=--write`. A mutant is one small fault in the agent that would hurt a user. Each is
put into a copy of the tree alone, and the tests of what it touches must fail; coverage says what a test runs,
this says what it notices.

A maintained tool (mutmut, cosmic-ray) changes every operator of every module, which would be many hours on
two cores, and what survives it are mostly texts and equivalents that do no harm. A list of our own names the
faults that matter, each with the harm it does, and takes minutes. When it was first tried, 88 of its 449
mutants lived in the tests of what they touch; each has a test near it since.

The list is data: `tools/mutants/list/*.toml`. A text that is no longer found, or is found twice, is an error
of the list: `python -m tools.mutants --list` names each in one line. `make mutants NAMES="probe gate-mig"`
tries a family or single ones.
"""


def page(tried: Sequence[Tried]) -> str:
    """The page; each mutant as it ended when it was last tried."""
    return formatted("\n".join((HEAD, *_summary(tried), "", *_survivors(tried), "", *_all(tried), "")))


def _summary(tried: Sequence[Tried]) -> Iterator[str]:
    yield "## Summary\n"
    yield "| family | mutants | killed | not killed | seconds |"
    yield "|---|---|---|---|---|"
    for family in sorted({one.mutant.family for one in tried}):
        yield _row(family, [one for one in tried if one.mutant.family == family])
    yield _row("all", tried)
    yield f"\nAll of them one after the other: {sum(one.seconds for one in tried) / 60:.0f} minutes."


def _row(name: str, tried: Sequence[Tried]) -> str:
    dead = sum(one.dead for one in tried)
    seconds = sum(one.seconds for one in tried)
    return f"| {name} | {len(tried)} | {dead} | {len(tried) - dead} | {seconds:.0f} |"


def _survivors(tried: Sequence[Tried]) -> Iterator[str]:
    yield "## Not killed\n"
    living = [one for one in tried if not one.dead]
    yield from (f"- `{one.mutant.id}`: {one.mutant.harm} ({one.end.value})" for one in living)
    if not living:
        yield "None."


def _all(tried: Sequence[Tried]) -> Iterator[str]:
    yield "## All of them"
    for family in sorted({one.mutant.family for one in tried}):
        yield f"\n### {family}\n"
        yield "| mutant | what a user would suffer | tests |"
        yield "|---|---|---|"
        for one in tried:
            if one.mutant.family == family:
                tests = ", ".join(name.removesuffix(".py") for name in one.mutant.tests)
                yield f"| {one.mutant.id} | {one.mutant.harm} | {tests} |"
