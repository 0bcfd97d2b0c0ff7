"""`wirewatch check`: may a job start here. Answers in milliseconds, and always by its deadline."""

import gc
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import click

from wirewatch.cli.check.answer import (
    CONFIGURED,
    HEALTHS,
    GatePolicy,
    Grounds,
    Terms,
    aged,
    decide,
    document,
    found,
    line,
    nothing,
)
from wirewatch.cli.check.daemon import OF_DEMO, ask_daemon, daemon_address, node_name
from wirewatch.cli.check.gpus import JobGpus, answer_for
from wirewatch.cli.groups import examples, is_terminal
from wirewatch.cli.options import Duration, WholeNumber, replay_options
from wirewatch.cli.options import owner as checked_owner
from wirewatch.core.types import FAIL_ON_NAMES, Health, Subject
from wirewatch.documents.health import CheckFinding, ProbeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirewatch.cli.check.polling import CheckedNode
    from wirewatch.core.types import Finding

DEADLINE, PLAY = 3.0, 60.0
"""Seconds for the answer: by default, and for a recording, which is played for minutes of its own time."""
RESERVE, RESERVE_PART = 0.5, 0.15
"""Seconds for the start and the end of the interpreter, but at most this part of the deadline."""
DAEMON, DAEMON_PART = 5.0, 1 / 3
"""Seconds that the daemon may take to answer when a poll can follow, but at most this part of the time."""
PROBE = 10.0
"""Seconds that must be left to begin a probe: the first probe of a node takes this long."""
TIDY = 1.0
"""Seconds before the deadline at which a probe is killed, so that its outcome can still be printed."""
T = TypeVar("T")


class Healths(click.ParamType[frozenset[Health]]):
    """Healths separated by commas; FAILED always belongs to them."""

    name = "healths"

    def convert(
        self, value: str | frozenset[Health], param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[Health]:
        names = [] if isinstance(value, frozenset) else [name.strip().lower() for name in value.split(",")]
        for name in names:
            if name not in FAIL_ON_NAMES:
                self.fail(f"{name!r} is not one of {', '.join(FAIL_ON_NAMES)}", param, ctx)
        given = (FAIL_ON_NAMES[name] for name in names)
        return value if isinstance(value, frozenset) else frozenset({Health.FAILED, *given})


@click.command(
    epilog=examples("wirewatch check", "wirewatch check --replay demo-dgx-h200 --overlay nvlink-link-down")
)
@click.option("--config", type=click.Path(path_type=Path), help="The daemon's TOML file.")
@click.option("--socket", help="The daemon's socket, instead of the configured one.")
@click.option(
    "--max-age",
    type=Duration(),
    help="Age up to which the last probe is fresh, such as 2h; default: the daemon's limit.",
)
@click.option(
    "--deadline",
    type=Duration(above_zero=True),
    help="Time for the answer, whatever hangs; default: 3s, and 1m to play a recording.",
)
@click.option(
    "--fail-on",
    type=Healths(),
    help="Healths with which no job starts, failed[,unknown,degraded], instead of the configured ones.",
)
@click.option(
    "--owner",
    callback=checked_owner,
    help="The job that holds the GPUs, slurm:ID or pod:UID: probe them if the last probe is old.",
)
@click.option(
    "--gpus",
    help="The GPUs that the job holds, such as 0-3 or $SLURM_JOB_GPUS: leave the findings of others aside.",
)
@click.option(
    "--of",
    type=WholeNumber(0, 9999),
    help="With --gpus: how many GPUs of this node the scheduler counts; another number means the whole node.",
)
@click.option(
    "--without-gpus", is_flag=True, help="Leave the findings of all GPUs aside: is the node itself fit."
)
@click.option("--cached", is_flag=True, help="Give the daemon's verdict or UNKNOWN; never poll.")
@click.option("--require-fresh-probe", "require", is_flag=True, help="Start no job without a fresh probe.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a line.")
@replay_options
@click.pass_context
def check(
    context: click.Context, *, config: Path | None, socket: str | None, max_age: float | None,
    deadline: float | None, fail_on: frozenset[Health] | None, owner: str | None, gpus: str | None,
    of: int | None, without_gpus: bool, cached: bool, require: bool, as_json: bool, replay: str | None,
    overlays: Sequence[str],
) -> None:  # fmt: skip
    """Say whether a job may start on this node.

    The daemon's verdict is printed. If no daemon answers, this command polls the node itself. A recording is
    played, without waiting, until what it or an overlay changes has begun and has been confirmed.

    The exit code is 0 unless the health is one with which no job starts: then it is 1 for DEGRADED, 2 for
    FAILED and 3 for UNKNOWN. These are FAILED and UNKNOWN, unless the configuration ([policy.verdict]
    fail_on) or --fail-on says otherwise. When no answer is ready by the deadline, the health is UNKNOWN.

    On a shared node, --gpus leaves aside the findings of GPUs that the job does not hold, and says so. The
    list may have numbers, ranges, UUIDs, PCI addresses and MIG devices, with commas. A list that is empty,
    cannot be read or names an unknown GPU means the whole node.
    """
    began: float | None = context.find_object(float)
    if deadline is None:
        deadline = PLAY if replay else DEADLINE
    end = (time.monotonic() if began is None else began) + deadline - min(RESERVE, deadline * RESERVE_PART)
    if cached and (replay or owner):
        raise click.UsageError("--cached polls nothing: it cannot be used with --replay or --owner")
    if gpus is not None and without_gpus:
        raise click.UsageError("--gpus and --without-gpus exclude each other")
    if of is not None and gpus is None:
        raise click.UsageError("--of goes with --gpus")
    job = JobGpus(gpus, of) if gpus is not None or without_gpus else None
    terms = Terms(fail_on, max_age, require)
    request = CheckRequest(end, config, socket, max_age, owner, cached, replay, tuple(overlays))
    verbose = bool(context.find_root().params.get("verbose"))
    context.exit(_answer(request, terms, job, as_json=as_json, verbose=verbose))


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check to make: `end` is the deadline in monotonic seconds, `max_age` of a probe in seconds."""

    end: float
    config: Path | None = None
    socket: str | None = None
    max_age: float | None = None
    owner: str | None = None
    cached: bool = False
    replay: str | None = None
    overlays: tuple[str, ...] = ()


class Attempt:
    """One check. `run` and `tidy` belong to a thread that may hang; `so_far` and `kill` to the main thread.

    `settle_in` is called before any work beyond the question to the daemon.
    """

    def __init__(self, request: CheckRequest, settle_in: Callable[[], None]) -> None:
        self._request, self._settle_in = request, settle_in
        self._node: CheckedNode | None = None
        self.so_far: Callable[[], Grounds] = lambda: nothing("the configuration could not be read in time")

    def run(self) -> Grounds:
        """Ask the daemon, poll and probe as far as needed; returns the knowledge at the end.

        Raises Unusable: the configuration, the recording or an overlay cannot be used.
        """
        grounds, owner = self._verdict(), self._request.owner
        return grounds if owner is None or grounds.released else self._with_probe(grounds, owner)

    def _verdict(self) -> Grounds:
        request = self._request
        if request.replay:
            return self._polled(f"a poll of recording {request.replay}", CONFIGURED)
        address = daemon_address(request.socket, request.config, gate=not is_terminal(sys.stdout))

        def hear(why: str) -> None:
            self.so_far = lambda: nothing(why, address.policy)

        hear("the daemon did not answer in time")
        left = request.end - time.monotonic()
        seconds = left if request.cached else min(left * DAEMON_PART, DAEMON)
        answer = ask_daemon(address.socket, round(seconds, 2), hear)
        if isinstance(answer, Grounds):
            return replace(answer, source="demo", why=OF_DEMO) if address.demo else answer
        if request.cached:
            return nothing(answer, address.policy)
        return self._polled(f"a poll without the daemon, since {answer}", address.policy)

    def _polled(self, why: str, policy: GatePolicy) -> Grounds:
        self.so_far = lambda: nothing(f"{why}; it did not begin in time", policy)
        poll = self._opened().poll()
        self.so_far = lambda: poll.grounds(f"{why}; it did not end in time")
        poll.run(self._request.end)
        return poll.grounds(why)

    def _opened(self) -> "CheckedNode":
        """The node, opened once."""
        from wirewatch.cli.check.polling import CheckedNode, NodeSource

        if self._node is None:
            self._settle_in()
            request = self._request
            source = NodeSource(request.config, request.replay, request.overlays)
            self._node = CheckedNode(source, keep=request.owner is not None)
        return self._node

    def _with_probe(self, grounds: Grounds, owner: str) -> Grounds:
        """Add a probe for the owner, if the last probe is old and the time suffices."""
        if not self._is_old(grounds):
            return grounds
        # The daemon reads a probe of another process at its next turn only; jobs may be shorter than that.
        grounds = self._recalled(grounds)
        if not self._is_old(grounds):
            return grounds
        left = self._request.end - TIDY - time.monotonic()
        if left < PROBE:
            return _with(grounds, f"no probe: {max(left, 0.0):.0f} s are left, it may take {PROBE:.0f} s")
        self.so_far = lambda: _with(grounds, "the probe did not end in time")
        asked = self._opened().probe(owner, self._request.end - TIDY)
        merged = _merged(grounds, asked.findings)
        if asked.probed is None or asked.probed.outcome != "ok":
            return _with(merged, f"no probe: {asked.why}")
        return replace(merged, probe=ProbeStatus(asked.at, 0.0, fresh=True, required=grounds.required))

    def _is_old(self, grounds: Grounds) -> bool:
        last = aged(grounds.probe, self._request.max_age)
        return last is not None and not last.fresh

    def _recalled(self, grounds: Grounds) -> Grounds:
        """Add the newest probe of the history, if the daemon does not know it yet."""
        self.so_far = lambda: _with(grounds, "the history of probes could not be read in time")
        newest, findings = self._opened().last_probe()
        if newest is None or grounds.probe is None or newest.at <= grounds.probe.at:
            return grounds
        probe = replace(grounds.probe, at=newest.at, age_seconds=newest.age_seconds, fresh=newest.fresh)
        return replace(_merged(grounds, findings), probe=probe)

    def tidy(self) -> None:
        """Close the hardware, which may take a while."""
        if self._node is not None:
            self._node.stop()

    def kill(self) -> None:
        """Kill processes that may hang, without waiting."""
        if self._node is not None:
            self._node.kill()


class Work(Generic[T]):
    """Work in a thread that does not keep the process alive; `after` runs there once the outcome is known."""

    def __init__(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        self._outcome: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work, after), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        try:
            self._outcome.put(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._outcome.put(error)
        after()

    def outcome(self, seconds: float) -> T:
        """Return the result of the work, or raise its error; TimeoutError after this number of seconds."""
        try:
            outcome = self._outcome.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def ended(self, seconds: float) -> bool:
        """Wait, and return whether all is done within this number of seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()


def _answer(
    request: CheckRequest, terms: Terms, job: JobGpus | None, *, as_json: bool, verbose: bool
) -> int:  # fmt: skip
    """Print the answer; return the exit code, with which the process ends at once, whatever still hangs."""

    def settle_in() -> None:
        gc.enable()
        keep_stderr(verbose=verbose)

    attempt = Attempt(request, settle_in)
    work = Work(attempt.run, attempt.tidy)
    try:
        grounds, in_time = work.outcome(request.end - time.monotonic()), True
    except TimeoutError:
        grounds, in_time = attempt.so_far(), False
    at = time.time()
    answer = decide(grounds, terms, at) if job is None else answer_for(job, grounds, terms, at)
    host = answer.grounds.host or ("" if request.replay else node_name())
    click.echo(json.dumps({**document(answer), "host": host}, indent=1) if as_json else line(answer))
    if not in_time or not work.ended(request.end - time.monotonic()):
        attempt.kill()
    return answer.code


def _with(grounds: Grounds, why: str) -> Grounds:
    return replace(grounds, why=f"{grounds.why}; {why}" if grounds.why else why)


def _merged(grounds: Grounds, found_by_probe: "Iterable[Finding]") -> Grounds:
    """Add the findings of a probe; each replaces a finding with the same rule and subject."""
    newer = tuple(found(finding) for finding in found_by_probe)
    again = {_key(one) for one in newer}
    others = (one for one in grounds.findings if _key(one) not in again)
    findings = sorted((*newer, *others), key=lambda one: -HEALTHS[one.health])
    health = max((grounds.health, *(HEALTHS[one.health] for one in newer)))
    return replace(grounds, health=health, findings=tuple(findings))


def _key(one: CheckFinding) -> tuple[str, Subject]:
    return one.rule, Subject.of(one.subject)


def keep_stderr(*, verbose: bool) -> None:
    """Log to the caller's standard error, and keep it from the processes that we start.

    A process that hangs in the driver outlives us, and a caller that reads to the end would wait for it.
    """
    from wirewatch.daemon.log import log_to_stderr

    try:
        ours = os.dup(2)
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
    except OSError:
        return  # closed by the caller
    sys.stderr = open(ours, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115, PTH123
    log_to_stderr(verbose=verbose)
