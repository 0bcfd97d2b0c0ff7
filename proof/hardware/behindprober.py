"""An agent without privileges whose prober probes for it: beside foreign work, and after its death."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from proof.hardware import processes
from proof.hardware.apart import AGENT, SOMEBODY, Asking, ProberProcess, Witness, probe_settings
from proof.hardware.daemon import Daemon, every
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.probing import MODULE, Probing

INTERVAL = 2.0
PROBED_WITHIN = 60.0
SKIPS = 3
SKIPS_WITHIN = 40.0
DEAD_WITHIN = 2.0
TOLD_WITHIN = 15.0
AWAY = 3.0
"""Seconds for which the prober stays away."""
UNKNOWN = 3
LOOK = 0.1
OFTEN = "interval = 1.0\nprobe_interval = 3.0\njitter = 0.0\nsettle = 2.0\nbudget = 1.0\n"


class Agent:
    """The running agent, and what it reports."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def told(self) -> dict[str, Any]:
        scrape = self.daemon.scrape()
        health = json.loads(self.daemon.get("/health").body)
        probes = json.loads(self.daemon.get("/api/v1/probes").body)
        return {
            "ok": scrape.value("probe_runs_total", result="ok") or 0,
            "away_runs": scrape.value("probe_runs_total", result="away") or 0,
            "busy": scrape.value("probe_skips_total", reason="busy") or 0,
            "away": scrape.value("probe_skips_total", reason="prober_away") or 0,
            "fresh": scrape.value("probe_fresh"),
            "success": scrape.value("probe_last_success_timestamp_seconds"),
            "job_ready": scrape.value("job_ready"),
            "findings": [finding["rule"] for finding in health["findings"]],
            "gate": probes["gate"]["reason"],
            "past": [[one["outcome"], one["why"]] for one in probes["past"][:3]],
        }

    def until(self, good: Callable[[dict[str, Any]], bool], within: float) -> tuple[dict[str, Any], float]:
        """What is reported once it is good, or in the end; and the seconds until then."""
        began = time.monotonic()
        told = self.told()
        while not good(told) and time.monotonic() < began + within:
            time.sleep(LOOK)
            told = self.told()
        return told, time.monotonic() - began


def run(report: Report, prober: ProberProcess, asking: Asking, here: Probing | None) -> None:
    config = every(INTERVAL, link_detail=False, probe=f"[probe]\n{probe_settings(prober, OFTEN)}")
    with Daemon(config, user=AGENT) as daemon:
        agent = Agent(daemon)
        try:
            report.attempt("an agent's probe", lambda: _probes(report, agent, prober))
            if here is None:
                report.progress("nobody computes on a recording")
            else:
                report.attempt("beside somebody's work", lambda: _beside(report, agent, asking))
            report.attempt("the prober's death", lambda: _death(report, agent, prober, here))
        finally:
            report.note(agent_log=daemon.log())


def _probes(report: Report, agent: Agent, prober: ProberProcess) -> None:
    with Witness(prober.pid) as seen:
        # The first may have been over before the agent was ready.
        first = agent.told()["ok"]
        told, seconds = agent.until(lambda told: told["ok"] > first, PROBED_WITHIN)
    mine = [agent.daemon.pid, *processes.children(agent.daemon.pid)]
    standings = {pid: processes.standing(pid) for pid in mine}
    report.note(agent={"told": told, "processes": [asdict(one) for one in standings.values()]})
    bare = all(one.user == AGENT and not one.capabilities for one in standings.values())
    alone = all(one.groups == {AGENT} for one in standings.values())
    report.check(
        f"the agent and what it starts are user {AGENT}, without a capability and another group",
        ok=bare and alone, told=f"{len(standings)} processes",
    )  # fmt: skip
    report.check(
        "the agent has a probe, no finding, and takes the next job",
        ok=told["ok"] > first and told["fresh"] == 1 and not told["findings"] and told["job_ready"] == 1,
        told=f"after {seconds:.1f} s: {told}",
    )  # fmt: skip
    parents = {one.parent for one in seen.workers.values()}
    report.check("and no worker of its own", ok=bool(parents) and not parents & set(mine), told=str(parents))


def _beside(report: Report, agent: Agent, asking: Asking) -> None:
    """Several probes come due while a job computes."""
    with Job("foreign", "0", "--compute", user=SOMEBODY) as busy:
        pid = int(busy.wait("READY", 60))
        busy.send("go")
        busy.wait("UP", 60)
        theirs = processes.standing(pid)
        agent.until(lambda told: told["gate"] == "busy", SKIPS_WITHIN)
        began = agent.told()
        with Witness(agent.daemon.pid) as seen:
            status, document, _ = asking.ask(asking.through)
            told, _ = agent.until(lambda now: now["busy"] >= began["busy"] + SKIPS, SKIPS_WITHIN)
        busy.must_run()
    report.note(busy={"theirs": asdict(theirs), "began": began, "told": told, "command": document})
    why = f"status {status}, {document['outcome']}: {document['why']}"
    report.check(
        f"beside work of user {theirs.user} the command says busy, status {UNKNOWN}, and tells no figures",
        ok=theirs.user == SOMEBODY and status == UNKNOWN and document["outcome"] == "skipped"
        and document["why"].startswith("busy: ") and str(pid) in document["why"] and not document["results"],
        told=why,
    )  # fmt: skip
    kept = ("ok", "success")
    report.check(
        f"the agent counts {SKIPS} skips as busy and publishes nothing new",
        ok=told["busy"] >= began["busy"] + SKIPS and all(told[name] == began[name] for name in kept)
        and not seen.workers,
        told=f"{told}, workers {list(seen.workers)}",
    )  # fmt: skip
    report.check("and it takes the next job", ok=not told["findings"] and told["job_ready"] == 1)
    after, seconds = agent.until(lambda now: now["ok"] > told["ok"], PROBED_WITHIN)
    report.check(
        f"it probes again within {PROBED_WITHIN:g} s", ok=after["ok"] > told["ok"], told=f"{seconds:.1f} s"
    )


def _death(report: Report, agent: Agent, prober: ProberProcess, here: Probing | None) -> None:
    """SIGKILL while its worker computes."""
    free = here.used() if here else []
    worker = _worker(PROBED_WITHIN)
    if here:
        here.up(worker)
    else:
        time.sleep(0.5)
    killed = time.monotonic()
    prober.kill()
    while processes.alive(worker) and time.monotonic() < killed + DEAD_WITHIN:
        time.sleep(0.001)
    seconds = time.monotonic() - killed
    report.check(
        f"the worker dies with the prober within {DEAD_WITHIN:g} s", ok=not processes.alive(worker),
        told=f"{seconds:.3f} s",
    )  # fmt: skip
    left = here.left(free) if here else ""
    report.check("and leaves nothing on the GPUs", ok=not left, told=left)
    told, took = agent.until(lambda now: now["gate"] == "prober_away" and now["away_runs"] > 0, TOLD_WITHIN)
    time.sleep(AWAY)
    away = agent.told()
    report.note(death={"told": told, "away": away})
    report.check(
        f"the agent tells within {TOLD_WITHIN:g} s that the prober is away and which probe that cost",
        ok=told["gate"] == "prober_away" and told["away_runs"] == 1 and told["past"][0][0] == "away",
        told=f"{took:.1f} s: {told['past'][0]}",
    )  # fmt: skip
    report.check(
        "which is no finding, and the node takes the next job",
        ok=not away["findings"] and away["job_ready"] == 1 and away["away"] > 0, told=str(away),
    )  # fmt: skip
    _return(report, agent, prober, away["ok"])


def _return(report: Report, agent: Agent, prober: ProberProcess, before: int) -> None:
    """A new prober after `before` good probes."""
    started = prober.start()
    back, took = agent.until(lambda now: now["ok"] > before, PROBED_WITHIN)
    report.check(
        f"a new prober is found, and probes within {PROBED_WITHIN:g} s", ok=back["ok"] > before,
        told=f"it listened after {started:.1f} s, a probe was there {took:.1f} s later",
    )  # fmt: skip
    log = agent.daemon.lines("prober")
    report.note(prober_lines=log)
    said = [any(word in line for line in log) for word in ("the prober is away", "the prober answers again")]
    report.check("the agent's log tells both", ok=all(said))


def _worker(within: float) -> int:
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = processes.with_argument(MODULE)
        if found:
            return found[0]
        time.sleep(0.005)
    raise KitError(f"no worker was started within {within:g} s")
