"""The API server goes away for a minute, and the node breaks meanwhile."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proof.kubernetes.cluster import Cluster, Pod, settled
from proof.kubernetes.condition import is_now, seconds
from proof.kubernetes.image import OVERLAY
from tests.waiting import until
from wirewatch.kubernetes.apiserver import RequestResult

AWAY = 60.0
FROM = 60
"""Seconds after the recording began to play at which the fault is there."""
LATE = f"""
about = "GPU 5 loses NVLink 3, once somebody has looked away"

[[change]]
port = "nvml"
match = "gpu5/Field(165,3)"
from = {FROM}
set = 0
"""
PLACE = "/run/wirewatch/late.toml"
"""On the node and in the agent's container: the chart's folder for a gate."""
MOST_REQUESTS = 8
"""Waits of 2 s, twice as long each time, half of it chance: six in a minute at most; one was due anyway."""
REFUSED = 'wirewatch_node_condition_updates_total{result="unreachable"}'
WANTED = 'wirewatch_node_condition_status{status="false"}'


@dataclass(frozen=True)
class Looked:
    """What was seen of the agent for a while: Unix seconds, and seconds of answers and of processor."""

    began: float
    ended: float
    worst: float
    asked: int
    requests: float
    cpu: float


def api_server_away(cluster: Cluster) -> str:
    Path(PLACE).write_text(LATE, "utf-8")
    cluster.upgrade(
        agent={"env": {OVERLAY: PLACE}},
        config={"kubernetes": {"condition_failed_after": 15}},
    )
    pod = settled(cluster)
    assert is_now(cluster, "True")
    usual = _look(pod, 15)
    while time.time() < seconds(pod.started("agent")) + FROM - 10:
        assert pod.health()["health"] == "ok"
        time.sleep(0.5)
    cluster.programs.stop("kube-apiserver", signal.SIGKILL)
    minute = _look(pod, AWAY)
    assert pod.metrics()[WANTED] == 1, "the node broke while nobody could be told"
    cluster.plane.start_api_server()
    up = time.time()
    away = up - minute.began
    told = until("the condition is False", lambda: is_now(cluster, "False"), 120)
    arrived = time.time() - up
    assert minute.began < seconds(told["lastTransitionTime"]) <= minute.ended, told
    assert "GPU 5 link 3" in told["message"], told
    assert 1 <= minute.requests <= MOST_REQUESTS, minute
    assert minute.cpu < 2 * usual.cpu * AWAY / 15, (minute, usual)
    _as_before(settled(cluster), pod)
    return (
        f"killed, and ready again after {away:.0f} s: in the first minute the agent answered all of "
        f"{minute.asked} questions, the slowest in {1000 * minute.worst:.0f} ms, tried {minute.requests:.0f} "
        f"times, logged it once, and used {minute.cpu:.1f} s of processor "
        f"({usual.cpu * AWAY / 15:.1f} s a minute before, asked as often); the link that died meanwhile came "
        f"{arrived:.0f} s after the API server was ready again, False since when it was so; no restart. "
        f"All requests of the agent until then: {_results(pod.metrics())}"
    )


def _as_before(after: Pod, before: Pod) -> None:
    """The same containers, and one line of the log for the trouble and one for its end."""
    assert (after.name, after.restarts()) == (before.name, 0)
    log = after.log("agent")
    assert log.count(RequestResult.UNREACHABLE.meaning) == 1, log
    assert "the API server accepts it again" in log


def _look(pod: Pod, lasting: float) -> Looked:
    began, worst, asked = time.time(), 0.0, 0
    requests, cpu = pod.metrics()[REFUSED], pod.cpu_seconds("agent")
    while time.time() < began + lasting:
        for path in ("/readyz", "/livez", "/metrics"):
            once = time.monotonic()
            assert pod.ask(path)[0] == 200
            worst, asked = max(worst, time.monotonic() - once), asked + 1
        time.sleep(1)
    counted = pod.metrics()[REFUSED] - requests
    return Looked(began, time.time(), worst, asked, counted, pod.cpu_seconds("agent") - cpu)


def _results(metrics: Mapping[str, float]) -> str:
    """Requests by what became of them."""
    told = {
        result.value: metrics[f'wirewatch_node_condition_updates_total{{result="{result.value}"}}']
        for result in RequestResult
    }
    return ", ".join(f"{count:.0f} {name}" for name, count in told.items() if count)
