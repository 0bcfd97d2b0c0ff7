"""docs/faults.md: the words of page.in.md with the courses of all faults."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from dashboards.runbook import entries, entry_of
from proof.rehearsal.page import table
from tools import alerting
from tools.faults.course import Course, Stage
from tools.faults.height import Found
from tools.prose import formatted
from wirewatch.catalogue import components, rule_of, rules
from wirewatch.core.collector import Rule
from wirewatch.core.types import Health
from wirewatch.verdict.node import PROBATION

TEXT = Path(__file__).with_name("page.in.md")
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
HEAD = (
    "fault", "finding", "node", "seen after", "FAILED after", "metric", "alert", "when it is over",
    "daemon started again", "machine started again",
)  # fmt: skip
SEVERITY = {Health.FAILED: "critical", Health.DEGRADED: "ticket", Health.UNKNOWN: "ticket"}
UNKNOWN_ALERT = "WirewatchNodeUnknown"
MINUTE, HOUR = 60.0, 3600.0


def spoken(seconds: float) -> str:
    """A length of time as people say it, to the second where it is short."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.3g} h"


def page(courses: Sequence[Course]) -> str:
    """The whole page."""
    faults = [one for one in courses if one.found]
    harmless = [one for one in courses if not one.found]
    left = list(unplayed(courses))
    text = TEXT.read_text("utf-8").format(
        faults=len(faults), families="\n\n".join(_families(faults)),
        harmless=table(("play", "what it is"), ((f"`{one.name}`", one.about) for one in harmless)),
        sections="\n".join(map(section, faults)), unplayed=len(left),
        others=table(("rule", "health", "alert", "how to see it"), map(_other, left)),
    )  # fmt: skip
    return formatted(text)


def row(course: Course) -> tuple[str, ...]:
    """The line of a fault that was seen."""
    first = course.found[0]
    more = len(course.found) - 1
    return (
        f"[`{course.name}`](#{course.name})", f"`{first.rule}`{f' and {more} more' if more else ''}",
        course.health.name, spoken(min(one.seen for one in course.found)), _failed_after(course),
        _metric(course), alert(first),
        outlines(course.after),
        restarted(course, course.kept, course.gone),
        restarted(course, course.lasted, course.booted),
    )  # fmt: skip


def alert(found: Found) -> str:
    """The alert that reports a finding, its severity, and after how long.

    Raises:
        LookupError: no rule is declared for it, or no alert of that severity is there.
    """
    rule = rule_of(found.rule)
    if rule is None:
        raise LookupError(f"no collector declares {found.rule}")
    name = UNKNOWN_ALERT if found.health is Health.UNKNOWN else rule.reported
    severity = SEVERITY[found.health]
    for one in alerting.alerts():
        if (one.name, one.severity) == (name, severity):
            when = "at once" if one.hold in {"", "0s"} else f"after {one.hold}"
            return f"[{name}](runbook.md#{alerting.anchor(name)}), {severity} {when}"
    raise LookupError(f"{found.rule}: there is no alert {name} of severity {severity}")


def outlines(stages: Sequence[Stage]) -> str:
    """What the node was, one after the other: `FAILED; probation after 75 s; OK after 24 h`."""
    made: list[str] = []
    last = ""
    for one in stages:
        word = _worded(one)
        if word != last:
            made.append(f"{word} after {spoken(one.seconds)}" if one.seconds else word)
        last = word
    return "; ".join(made)


def restarted(course: Course, kept: Sequence[Stage], gone: Sequence[Stage]) -> str:
    """Whether the worst finding survives a start, while its fault lasts (`kept`) and when it is over."""
    worst = course.found[0]
    missing = [one for one in kept if not _shows(one, worst)]
    if not missing:
        lasting = "kept"
    elif _shows(kept[-1], worst):
        again = kept[kept.index(missing[-1]) + 1]
        lasting = f"{_worded(missing[0])}, found again after {spoken(again.seconds)}"
    else:
        named = any((rule, part) == (worst.rule, str(worst.subject)) for rule, part, *_ in kept[-1].shown)
        lasting = f"{'' if named else 'lost: '}{outlines(kept)}"
    return f"{lasting}; repaired meanwhile: {outlines(gone)}"


def section(course: Course) -> str:
    """The details of one fault."""
    first, *others = course.found
    metrics = ", ".join(f"`wirewatch_{name}`" for name in course.metrics.changed)
    gone = ", ".join(f"`wirewatch_{name}`" for name in course.metrics.vanished)
    points = {
        "Found": _finding(first),
        "And": "; ".join(map(_finding, others)),
        "Evidence": first.evidence,
        "Do": first.action,
        "Alert": "; ".join(_alerts(course)),
        "Metrics": metrics,
        "No series of the part any more": gone,
        "Begun": "" if course.running else "before the daemon was started for the first time",
        "Otherwise": _otherwise(course),
        "When it is over": outlines(course.after),
        "Daemon started again, the fault lasts": outlines(course.kept),
        "Daemon started again, the fault is over": outlines(course.gone),
        "Machine started again, the fault lasts": outlines(course.lasted),
        "Machine started again, the fault is over": outlines(course.booted),
    }
    lines = [f"- **{label}:** {_plain(text)}" for label, text in points.items() if text]
    about = f"{course.about[:1].upper()}{course.about[1:]}."
    return f"### {course.name}\n\n{_plain(about)}\n\n" + "\n".join(lines) + "\n"


def unplayed(courses: Sequence[Course]) -> Iterator[Rule]:
    """The rules that no play has made."""
    made = {one.rule for course in courses for one in (*course.found, *(course.otherwise or ()))}
    return (rule for rule in rules() if not any(fnmatchcase(name, rule.name) for name in made))


def _families(faults: Sequence[Course]) -> Iterator[str]:
    for component in components():
        mine = [one for one in faults if one.found[0].collector == component.name]
        if mine:
            yield f"### Collector `{component.name}`: {component.about}\n\n{table(HEAD, map(row, mine))}"


def _alerts(course: Course) -> Iterator[str]:
    """Those of its findings; that of the node that is UNKNOWN only where that is the worst of it."""
    found = (one for one in course.found if one.health is not Health.UNKNOWN or one.health is course.health)
    yield from dict.fromkeys(map(alert, found))


def _metric(course: Course) -> str:
    best = course.metrics.primary
    return (
        f"{'no ' if best in course.metrics.vanished else ''}`wirewatch_{best}`" if best else "none of its own"
    )


def _failed_after(course: Course) -> str:
    failed = [one.worst for one in course.found if one.health is Health.FAILED]
    return spoken(min(failed)) if failed else "never"


def _shows(stage: Stage, found: Found) -> bool:
    wanted = (found.rule, str(found.subject))
    return any((rule, part) == wanted and health >= found.health for rule, part, health, _ in stage.shown)


def _worded(stage: Stage) -> str:
    over = stage.shown and all(how == PROBATION for *_, how in stage.shown)
    return "probation" if over else stage.health.name


def _finding(one: Found) -> str:
    worse = f", {one.health.name} after {spoken(one.worst)}" if one.worst > one.seen else ""
    begin = "seen" if worse else one.health.name
    return f"`{one.rule}` of {one.subject}, {begin} after {spoken(one.seen)}{worse}"


def _otherwise(course: Course) -> str:
    if course.otherwise is None:
        return ""
    found = "; ".join(map(_finding, course.otherwise)) or "nothing is found"
    when = "there before the daemon was first started" if course.running else "begun while the daemon runs"
    return f"{when}: {found}"


def _other(rule: Rule) -> tuple[str, str, str, str]:
    kind = next((one for one in entries() if any(fnmatchcase(name, rule.name) for name in one.names)), None)
    how = (kind or entry_of(rule.name)).points["Rehearse"].rstrip(".")
    healths = ", ".join(one.name for one in rule.healths)
    return (f"`{rule.name}`", healths, rule.reported, how)


def _plain(text: str) -> str:
    return text.replace("|", r"\|").replace("<", r"\<")
