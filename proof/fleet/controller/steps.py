"""What the controller does on a real API server, step by step; each gives a line of what was seen."""

import json
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from proof.fleet.controller.fleet import ACCOUNT, LEASE, MERGE, Fleet, Running
from tests.waiting import until as wait
from tools.chart.helm import NAME
from wirewatch_fleet.controller.node import MARK, TAINT_EFFECT, TAINT_KEY

NODES = 20
BUDGET = {"cluster": "20%", "pool": 4, "rack": 2, "stock": "50%"}
"""Of twenty nodes four within an hour, of a pool of ten four, of a rack of two or three two; ten in all."""
ACTS = {"dry_run": False, "budget": BUDGET}
QUIET = 6.0
"""Seconds in which something could have been done: three times `period`."""
Step = Callable[[Fleet], str]
T = TypeVar("T")


def until(what: str | Callable[[], str], look: Callable[[], T | None]) -> T:
    """With a limit that a machine keeps whose processors are all taken."""
    return wait(what, look, 240)


def dry_run(fleet: Fleet) -> str:
    """With no setting but where the API server is."""
    one = fleet.controller("dry")
    one.leads()
    fleet.says("n00", "False")
    until(one.log, lambda: one.metric('steps_due{step="take_out"}') == 1 or None)
    until(one.log, lambda: fleet.events() or None)
    time.sleep(QUIET)
    (told,) = fleet.events()
    assert (fleet.out(), fleet.patches()) == ({}, 0)
    assert told["message"].startswith("dry run: would be tainted")
    assert told["involvedObject"]["name"] == "n00"
    one.stop()
    return f"a FAILED node: no patch in the audit log; one Event, {told['reason']}: {told['message']!r}"


def taints(fleet: Fleet) -> str:
    one = fleet.controller("a", **ACTS)
    began = time.monotonic()
    fleet.becomes("n00")
    took = time.monotonic() - began
    node = fleet.node("n00")
    assert node["spec"]["taints"] == [{"key": TAINT_KEY, "effect": TAINT_EFFECT}]
    mark = node["metadata"]["annotations"][MARK]
    assert json.loads(mark)["did"] == "taint"
    until(one.log, lambda: any(e["message"].startswith("tainted") for e in fleet.events()) or None)
    return f"tainted {took:.0f} s after the controller's start, by one patch; annotation `{mark}`"


def pods(fleet: Fleet) -> str:
    """A pod that ran there goes on, another one finds no place; both by the real scheduler."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    if fleet.status_of("GET", f"{accounts}/jobs", None, "", fleet.plane.token) == 404:
        fleet.ask("POST", accounts, {"metadata": {"name": "jobs"}})
    for name, spec in (("runs", {"nodeName": "n00"}), ("waits", {"nodeSelector": {"only": "n00"}})):
        containers = [{"name": "x", "image": "x"}]
        pod = {
            "metadata": {"name": name},
            "spec": {
                **spec,
                "containers": containers,
                "serviceAccountName": "jobs",
                "automountServiceAccountToken": False,
            },
        }
        fleet.ask("POST", "/api/v1/namespaces/default/pods", pod)
    fleet.patch("n00", {"metadata": {"labels": {"only": "n00"}}})
    told = until("the scheduler has looked", lambda: _unscheduled(fleet, "waits"))
    assert TAINT_KEY in told
    kept = fleet.ask("GET", "/api/v1/namespaces/default/pods/runs")
    assert "deletionTimestamp" not in kept["metadata"]
    return f'a pod there stays; a new one waits: "{told}"'


def _unscheduled(fleet: Fleet, name: str) -> str | None:
    conditions = fleet.ask("GET", f"/api/v1/namespaces/default/pods/{name}")["status"].get("conditions", ())
    return next((one["message"] for one in conditions if TAINT_KEY in one.get("message", "")), None)


def what_says_nothing(fleet: Fleet) -> str:
    """UNKNOWN, an old heartbeat, one said once, one from the future, a node that is out by others."""
    fleet.says("n02", "Unknown")
    fleet.says("n04", "False", since=5000, heard=1000)
    fleet.says("n06", "False", since=10, heard=1)
    fleet.says("n08", "False", since=600, heard=-400)
    fleet.patch("n10", {"spec": {"unschedulable": True}})
    fleet.says("n10", "False")
    one = fleet.running["a"]
    wanted = {"stale": 2.0, "unconfirmed": 1.0, "out_already": 1.0}
    until(one.log, lambda: _refused(one) == wanted or None)
    time.sleep(QUIET)
    assert fleet.ours() == ["n00"]
    for name in ("n02", "n04", "n06", "n08", "n10"):
        fleet.says(name, "True")
    fleet.patch("n10", {"spec": {"unschedulable": None}})
    until("the cordon is gone", lambda: "n10" not in fleet.out() or None)
    return (
        "nothing for UNKNOWN, for a heartbeat of 1000 s ago, for one 400 s ahead, for FAILED that was not "
        f"repeated, for a node that is cordoned: refused {_words(wanted)}"
    )


def _refused(one: Running) -> dict[str, float]:
    begins = 'refused{reason="'
    return {
        key.removeprefix(begins).removesuffix('"}'): value
        for key, value in one.metrics().items()
        if key.startswith(begins) and value
    }


def _words(found: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.0f}" for key, value in sorted(found.items()))


def ten_at_once(fleet: Fleet) -> str:
    """Beside one that a person has cordoned, one that is NotReady and n00."""
    fleet.says("n00", "False")
    fleet.becomes("n00")
    fleet.patch("n01", {"spec": {"unschedulable": True}})
    fleet.ready("n03", "False")
    until("both are out", lambda: len(fleet.out()) == 3 or None)
    one = fleet.running["a"]
    with fleet.counted() as seen:
        for number in range(10, 20):
            fleet.says(f"n{number}", "False", since=600 - number)
        until(one.log, lambda: len(fleet.out()) == 6 or None)
        until(one.log, lambda: sum(_refused(one).values()) == 7 or None)
        time.sleep(QUIET)
    refused = _refused(one)
    assert fleet.ours() == ["n00", "n10", "n11", "n12"], fleet.ours()
    assert max(seen) == 6
    used = one.metric('budget_used{name="",scope="cluster"}')
    until(one.log, lambda: sum(e["reason"] == "InterconnectBudgetUsed" for e in fleet.events()) >= 7 or None)
    told = next(e["message"] for e in fleet.events() if e["reason"] == "InterconnectBudgetUsed")
    return (
        f"with n00 tainted, n01 cordoned by a person and n03 NotReady, ten more FAILED at once: three were "
        f"tainted, since others' outages are not new; never more than {max(seen)} of {NODES} out of use "
        f"in {len(seen)} looks; refused {_words(refused)}; `budget_used` {used:.0f}; seven Events, {told!r}"
    )


def undoes(fleet: Fleet) -> str:
    """Repaired nodes come back, the next take their place; what a person made theirs stays."""
    fleet.patch("n11", {"metadata": {"annotations": {MARK: None}}})
    for name in ("n00", "n10", "n11"):
        fleet.says(name, "True")
    until("two came back", lambda: ("n00" not in fleet.out() and "n10" not in fleet.out()) or None)
    tainted = [one["key"] for one in fleet.node("n11")["spec"]["taints"]]
    assert tainted == [TAINT_KEY], "the taint of which a person took the annotation away"
    until("the places are taken", lambda: len(fleet.out()) == 7 or None)
    after = sorted(name for name, why in fleet.out().items() if why == TAINT_KEY)
    assert after == ["n11", "n12", "n13", "n14", "n15"]
    assert fleet.out()["n01"].startswith("cordon")
    return (
        "n00, n10 and n11 are True again: the taint and the annotation of the first two are gone, and n13, "
        "n14 and n15, FAILED for longest, have their places; n11, whose annotation a person had removed, "
        "keeps its taint and is new no more; n01 stays cordoned"
    )


def overruled(fleet: Fleet) -> str:
    """A person takes the taint away while the node is FAILED."""
    fleet.patch("n11", {"spec": {"taints": None}})
    fleet.patch("n12", {"spec": {"taints": None}})
    one = fleet.running["a"]
    until(one.log, lambda: _refused(one).get("overruled") == 1 or None)
    time.sleep(QUIET)
    assert "n12" not in fleet.out()
    fleet.says("n12", "True")
    until(
        "the mark is gone", lambda: MARK not in fleet.node("n12")["metadata"].get("annotations", {}) or None
    )
    all_well(fleet)
    return (
        "n12's taint removed by hand: not set again while it is FAILED; its annotation goes once it is True"
    )


def all_well(fleet: Fleet) -> str:
    for name in (f"n{number:02}" for number in range(NODES)):
        fleet.says(name, "True")
        fleet.ready(name, "True")
        fleet.patch(name, {"spec": {"unschedulable": None}})
    until("all are in use", lambda: not fleet.out() or None)
    return ""


def restart(fleet: Fleet) -> str:
    """Killed while it holds the lease, and started again."""
    for number in (5, 7):
        fleet.says(f"n0{number}", "False")
    fleet.becomes("n05", "n07")
    before = fleet.patches()
    one = fleet.running["a"]
    one.stop(signal.SIGKILL)
    fleet.says("n09", "False")
    fleet.says("n05", "True")
    began = time.monotonic()
    one.start()
    fleet.becomes("n07", "n09")
    took = time.monotonic() - began
    made = fleet.patches() - before
    assert made == 2
    return (
        f"killed; meanwhile n09 failed and n05 recovered: {took:.0f} s after its start both were done, "
        f"by {made} patches"
    )


def lost_lease(fleet: Fleet) -> str:
    """The leader is stopped as a process that hangs; another one takes over; then the first goes on."""
    first, second = fleet.running["a"], fleet.controller("b", **ACTS)
    until(second.log, lambda: second.get("/readyz") == 200 or None)
    first.synced()
    assert second.metric("leader") == 0
    first.send(signal.SIGSTOP)
    began = time.monotonic()
    fleet.says("n11", "False")
    second.leads()
    led = time.monotonic() - began
    fleet.becomes("n07", "n09", "n11")
    tried = second.metric('steps_total{result="ok",step="take_out"}')
    # What the first still remembers: the same nodes, before n11 was taken out.
    with fleet.counted() as seen:
        first.send(signal.SIGCONT)
        until(first.log, lambda: first.metric("leader") == 0 or None)
        fleet.says("n13", "False")
        fleet.becomes("n07", "n09", "n11", "n13")
        time.sleep(QUIET)
    steps = {
        key: value
        for key, value in first.metrics().items()
        if key.startswith("steps_total") and "ok" not in key
    }
    assert first.metric("leader") == 0
    assert second.metric("leader") == 1
    assert max(seen) == 4
    assert not steps, steps
    assert second.metric('steps_total{result="ok",step="take_out"}') == (tried or 0) + 1
    second.stop()
    first.leads()
    return (
        f"the leader stopped (SIGSTOP): the other one led {led:.0f} s later (lease {LEASE:.0f} s) and "
        f"tainted n11; the "
        "first, let go on, saw that it leads no more and did nothing; SIGTERM to the second, and the "
        "first leads again"
    )


def api_server_away(fleet: Fleet) -> str:
    """Killed for half a minute, then stopped as one that hangs."""
    one = fleet.running["a"]
    one.synced()
    before = one.whole_log().count("does not give what is asked")
    fleet.programs.stop("kube-apiserver", signal.SIGKILL)
    began = time.monotonic()
    one.leads(leader=False)
    lost = time.monotonic() - began
    cpu = one.seconds()
    while time.monotonic() < began + 30:
        assert one.get("/livez") == 200
        time.sleep(0.5)
    cpu = (one.seconds() - cpu) / (time.monotonic() - began)
    fleet.plane.start_api_server()
    fleet.says("n07", "True")
    fleet.becomes("n09", "n11", "n13")
    back = time.monotonic() - began
    fleet.programs.send("kube-apiserver", signal.SIGSTOP)
    hung = time.monotonic()
    try:
        one.leads(leader=False)
        silent = time.monotonic() - hung
        assert one.get("/livez") == 200
    finally:
        fleet.programs.send("kube-apiserver", signal.SIGCONT)
    fleet.says("n09", "True")
    fleet.becomes("n11", "n13")
    told = one.whole_log().count("does not give what is asked") - before
    assert told <= 3, told  # the lease, the watch, and the hanging one
    return (
        f"killed: not the leader any more after {lost:.0f} s, /livez answers all the time, "
        f"{100 * cpu:.1f} % of a "
        f"processor; back after {back:.0f} s, n07, repaired meanwhile, is given back. Stopped (SIGSTOP), "
        f"so that "
        f"requests hang: not the leader any more after {silent:.0f} s; n09 is given back once it goes on"
    )


def cordons(fleet: Fleet) -> str:
    """The same with a cordon; and what the taint did is undone by it all the same."""
    one = fleet.running["a"]
    one.stop()
    other = fleet.controller("cordon", **ACTS, act="cordon")
    fleet.says("n02", "False")
    until(other.log, lambda: fleet.out().get("n02", "").startswith("cordon") or None)
    fleet.says("n11", "True")
    until(other.log, lambda: "n11" not in fleet.out() or None)
    fleet.says("n02", "True")
    until(other.log, lambda: "n02" not in fleet.out() or None)
    other.stop()
    return "n02 is cordoned and uncordoned; n11, which the taint had taken out, is given back too"


def undo(fleet: Fleet) -> str:
    """All of it, whatever the conditions say; nothing of others."""
    theirs = {"key": "example.org/rma", "effect": "NoSchedule"}
    before = fleet.node("n13")["spec"]["taints"]
    fleet.patch("n13", {"spec": {"taints": [*before, theirs]}})
    one = fleet.controller("undo", dry_run=False, act="undo")
    fleet.becomes()
    assert fleet.node("n13")["spec"]["taints"] == [theirs]
    time.sleep(QUIET)
    assert list(fleet.out()) == ["n13"]
    one.stop()
    return 'with act = "undo" n13, still FAILED, has only the taint that a person gave it'


def refused(fleet: Fleet) -> str:
    """What its account may do, with its own token."""
    token = fleet.token()
    core, own = "/api/v1", f"/api/v1/namespaces/{NAME}"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases"
    ask: dict[str, tuple[str, str, object]] = {
        "list nodes": ("GET", f"{core}/nodes", None),
        "patch a node": ("PATCH", f"{core}/nodes/n00", {}),
        "read its lease": ("GET", f"{lease}/{ACCOUNT}", None),
        "write an Event about a node": ("POST", f"{core}/namespaces/default/events", _EVENT),
        "patch a node's status": ("PATCH", f"{core}/nodes/n00/status", {}),
        "delete a node": ("DELETE", f"{core}/nodes/n00", None),
        "create a node": ("POST", f"{core}/nodes", {"metadata": {"name": "x"}}),
        "list pods": ("GET", f"{core}/pods", None),
        "evict a pod": ("POST", f"{core}/namespaces/default/pods/runs/eviction", {}),
        "list Events": ("GET", f"{core}/namespaces/default/events", None),
        "read another lease": ("GET", f"{lease}/other", None),
        "list leases": ("GET", lease, None),
        "delete its lease": ("DELETE", f"{lease}/{ACCOUNT}", None),
        "read secrets": ("GET", f"{own}/secrets", None),
        "make a token": ("POST", f"{own}/serviceaccounts/{ACCOUNT}/token", {"spec": {}}),
        "change its ClusterRole": ("PATCH", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ACCOUNT}", {}),
    }
    got = {
        name: fleet.status_of(method, path, body, MERGE if method == "PATCH" else "application/json", token)
        for name, (method, path, body) in ask.items()
    }
    allowed, denied = [*ask][:4], [*ask][4:]
    assert [got[name] for name in allowed] == [200] * 4, got
    assert {got[name] for name in denied} == {403}, got
    return f"allowed: {', '.join(allowed)}; refused (403): {', '.join(denied)}"


_EVENT = {
    "metadata": {"generateName": "n00.", "namespace": "default"},
    "involvedObject": {"kind": "Node", "name": "n00"},
    "reason": "Proof", "message": "", "type": "Normal", "source": {"component": "proof"},
}  # fmt: skip
STEPS: tuple[Step, ...] = (
    dry_run, taints, pods, what_says_nothing, ten_at_once, undoes, overruled, restart, lost_lease,
    api_server_away, cordons, undo, refused,
)  # fmt: skip
