"""The section of jobs that hang, and of those that did: which kind, and whom they wait for. Pure."""

from wirewatch.jobs.hangs import HangFacts, HangingJob, PastHang
from wirewatch.page.model import Cell, Column, Section, Sentence, Tone
from wirewatch.page.tables import cell, count, moment, span, table, unknown

MOST = 8
"""Hangs that are shown, the newest first; the state folder keeps more."""
_HEADS = (Column("Kind"), Column("Since"), Column("For"), Column("Job"), Column("What was seen"))


def hung(facts: HangFacts | None) -> bool:
    """Whether there is anything to show."""
    return facts is not None and bool(facts.now or facts.past)


def hangs_section(facts: HangFacts, now: float) -> Section:
    """Jobs that hang now, then the newest of those that are over; `now`: Unix seconds."""
    past = tuple(reversed(facts.past))
    shown = past[: max(0, MOST - len(facts.now))]
    rows = [*(_hanging(job, facts, now) for job in facts.now), *(_over(one, now) for one in shown)]
    lines = [Sentence(_summary(facts), "warn" if facts.now else "")]
    if len(past) > len(shown):
        lines.append(Sentence(f"{count(len(past) - len(shown), 'older one')} in the state folder.", "quiet"))
    return Section(
        "hangs", "Jobs that hang", tuple(lines), (table("hang-table", "Jobs that hang", _HEADS, rows),)
    )


def _summary(facts: HangFacts) -> str:
    now = f"{count(len(facts.now), 'job hangs', 'jobs hang')} now" if facts.now else "No job hangs now"
    over = f"; {count(len(facts.past), 'hang is over', 'hangs are over')}" if facts.past else ""
    return f"{now}{over}. A hang is the job's: the next one may start here."


def _hanging(job: HangingJob, facts: HangFacts, now: float) -> tuple[Cell, tuple[Cell, ...]]:
    owners = {facts.owners.get(pid, "") for pids in job.processes.values() for pid in pids}
    text = f"{job.text}. {job.action[:1].upper()}{job.action[1:]}."
    return _row(
        job.kind.value, job.found, now - job.found, ", ".join(sorted(owners - {""})), text, now, "warn"
    )


def _over(one: PastHang, now: float) -> tuple[Cell, tuple[Cell, ...]]:
    return _row(one.kind, one.begin, one.end - one.begin, one.owner, one.text, now, "quiet")


def _row(
    kind: str, begin: float, seconds: float, owner: str, text: str, now: float, tone: Tone
) -> tuple[Cell, tuple[Cell, ...]]:
    since = moment(begin, now)
    whose = cell(owner) if owner else unknown("the kernel does not show whose processes they are")
    length = Cell(span(seconds), note="" if tone == "quiet" else "and it lasts")
    return cell(kind, tone), (cell(since.text, note=since.ago), length, whose, cell(text))
