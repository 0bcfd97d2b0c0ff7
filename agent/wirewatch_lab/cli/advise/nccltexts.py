"""NCCL's settings as text: a table with reasons for people, exports, an env file or YAML for a job."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap

import yaml

from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch.cli.output import printable, utc
from wirewatch.cli.tables import table
from wirewatch.core.words import GB
from wirewatch.core.words import size as human
from wirewatch_lab.advice.settings.advice import NcclEnvDocument, VariableAdvice
from wirewatch_lab.advice.settings.check import NcclCheckDocument
from wirewatch_lab.advice.settings.finding import SettingFinding
from wirewatch_lab.advice.settings.measured import MeasuredSetting
from wirewatch_lab.study.spread import Regime
from wirewatch_lab.study.summary import MUCH, count, span

UNSET = "leave unset"
WIDTH = 110


def advice_lines(made: NcclEnvDocument) -> Iterator[str]:
    """The advice for people: a table, then each variable with its reason."""
    nccl = f"NCCL {made.nccl}" if made.nccl else "version of NCCL not known"
    yield f"NCCL's settings for {made.purpose}: {made.machine}, {nccl}"
    yield f"{UNSET}: NCCL's own choice, which holds unless something measured or read here speaks against it."
    yield ""
    rows = [(one.name, one.value or UNSET, one.confidence.value, _in_short(one)) for one in made.variables]
    yield from table(("variable", "value", "confidence", "measured here"), rows)
    for one in made.variables:
        yield ""
        yield f"{one.name}{f'={one.value}' if one.value is not None else f': {UNSET}'}"
        yield from _paragraph("why", one.reason)
        yield from _paragraph("guides disagree", one.disagree)
        for measured in one.measured:
            yield from _paragraph("measured here", measured_words(measured))
        yield from _paragraph("when not", one.when_not)
        yield from _paragraph("source", one.source)


def check_lines(made: NcclCheckDocument) -> Iterator[str]:
    """What is wrong for people, the worst first, and how much of what was looked at."""
    nccl = f"NCCL {made.nccl}" if made.nccl else "version of NCCL not known (--nccl)"
    yield f"NCCL's settings of {made.of}, for {made.machine}, {nccl}"
    for one in made.findings:
        yield ""
        yield f"{one.trouble.value.upper()}: {_written(one)} ({one.origin})"
        yield from _paragraph("", one.text)
        yield from _paragraph("source", one.source)
    for place in made.not_read:
        yield ""
        yield f"NOT KNOWN: {place.origin}"
        yield from _paragraph("", place.why)
    yield ""
    wrong = len({one.name for one in made.findings})
    yield f"{made.health.upper()}: {count(len(made.settings), 'setting')}, {wrong} of them with a remark"


def measured_words(one: MeasuredSetting) -> str:
    """A figure with and without, and whether it is more than the spread."""
    ranks = f"{one.op}, {count(one.ranks, 'rank')}, {one.launch}{', registered' if one.registered else ''}"
    if one.regime is Regime.LATENCY or one.op not in FACTORS:
        figures = f"{one.with_seconds * 1e6:.1f} us with {one.value}, {one.without_seconds * 1e6:.1f} without"
    else:
        rates = [
            busbw(one.op, one.ranks, one.at_bytes, seconds) / GB
            for seconds in (one.with_seconds, one.without_seconds)
        ]
        figures = f"{rates[0]:.1f} GB/s with {one.value}, {rates[1]:.1f} without"
    sizes = f"{span(one.first_bytes, one.last_bytes)} {one.speed - 1:+.1%}"
    return f"{figures} at {human(one.at_bytes)} ({ranks}); {sizes}: {_judged(one)}"


def _judged(one: MeasuredSetting) -> str:
    if one.spread is None:
        return "one repeat shows no spread: not judged"
    if one.verdict == "same":
        noise = one.noise or 0.0
        return f"may be noise, of which there may be {noise:.1%}" if noise < MUCH else "may be noise alone"
    return f"{one.verdict} by more than the spread ({max(one.spread):.1%})"


def shell(made: NcclEnvDocument) -> str:
    """Exports for sh and bash."""
    lines = (f"export {name}={shlex.quote(value)}" for name, value in _valued(made))
    return _commented(made, "\n".join(lines))


def env_file(made: NcclEnvDocument) -> str:
    """Lines of NAME=VALUE, for nccl.conf and `docker run --env-file`: both take values as they stand."""
    return _commented(made, "\n".join(f"{name}={value}" for name, value in _valued(made)))


def kubernetes(made: NcclEnvDocument) -> str:
    """The `env` of a container."""
    env = [{"name": name, "value": value} for name, value in _valued(made)]
    return _commented(made, yaml.safe_dump({"env": env}, sort_keys=False).rstrip())


FORMATS: Mapping[str, Callable[[NcclEnvDocument], str]] = {
    "shell": shell,
    "env": env_file,
    "yaml": kubernetes,
}


def _valued(made: NcclEnvDocument) -> Iterator[tuple[str, str]]:
    """Names with values, each on one line: a measured one is what somebody typed."""
    return ((one.name, printable(one.value)) for one in made.variables if one.value is not None)


def _commented(made: NcclEnvDocument, text: str) -> str:
    left = ", ".join(one.name for one in made.variables if one.value is None)
    head = [
        f"NCCL's settings for {made.purpose}: {printable(made.machine)}, {utc(made.at)}",
        *wrap(f"left to NCCL: {left}", WIDTH - 2),
    ]
    return "\n".join([*(f"# {line}" for line in head), text]) + "\n"


def _in_short(one: VariableAdvice) -> str:
    if not one.measured:
        return "-"
    best = max(one.measured, key=lambda found: (found.verdict == "faster", found.speed))
    return f"{best.value} {best.speed - 1:+.1%} {best.regime.value}: {best.verdict}"


def _written(one: SettingFinding) -> str:
    return f"{one.name}={one.value}" if one.value else one.name


def _paragraph(title: str, text: str) -> Iterator[str]:
    head = f"    {title}: " if title else "    "
    yield from wrap(printable(text), WIDTH, initial_indent=head, subsequent_indent="      ") if text else ()
