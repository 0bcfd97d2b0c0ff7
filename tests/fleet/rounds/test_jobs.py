"""A pair as a Job: what is asked of the API server, and what its answers mean."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rows import each
from wirewatch_fleet.rounds.engine import PairNode, PairState, RoundOrder
from wirewatch_fleet.rounds.jobs import (
    CAMPAIGN,
    PAIR,
    QUEUE,
    JobProgress,
    PairJobsOptions,
    TemplateError,
    checked,
    deleted,
    disrupted,
    job,
    job_progress,
    nodes_of,
    service,
    used_gpus,
)
from wirewatch_fleet.rounds.plan import PairWork, decode_pair_plan

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "hpc"}, "annotations": {"k8s.v1.cni.cncf.io/networks": "rdma"}},
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{
            "name": "pair", "image": "registry.example.org/wirewatch:1",
            "env": [{"name": "NODE_NAME", "value": "x"}],
            "resources": {"limits": {"rdma/hca": "1"}, "requests": {"cpu": "2"}},
        }],
    },
}  # fmt: skip
OPTIONS = PairJobsOptions("probes", TEMPLATE, leafs=("rack", "clique"))
ORDER = RoundOrder(
    3, (("n1", "n2"), ("n3", "n4")), PairWork(ranks=8, seconds=20.0, patience=10.0), 60.0, 120.0
)
NODES = {name: PairNode(name, address=f"10.0.0.{name[1:]}") for name in ("n1", "n2", "n3", "n4")}


def made(place: int = 0, options: PairJobsOptions = OPTIONS, order: RoundOrder = ORDER) -> dict[str, Any]:
    found = job(order, place, "camp", NODES, options)
    assert isinstance(found, dict)
    return found


def pod_of(one: dict[str, Any]) -> dict[str, Any]:
    spec = one["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def plan_of(one: dict[str, Any]) -> Any:
    env = {each["name"]: each.get("value") for each in pod_of(one)["containers"][0]["env"]}
    return decode_pair_plan(env["WIREWATCH_PAIR_PLAN"])


def test_two_pods_one_on_each_node_with_all_of_their_gpus() -> None:
    one = made(1)
    spec, pod = one["spec"], pod_of(one)
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 0)
    assert (spec["completionMode"], pod["restartPolicy"]) == ("Indexed", "Never")
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [term["matchFields"][0]["values"] for term in terms] == [["n3"], ["n4"]]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = spec["template"]["metadata"]["labels"]
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    assert labels == {"team": "hpc", CAMPAIGN: "camp", PAIR: "camp-r3-p1"}
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == {"rdma/hca": "1", "nvidia.com/gpu": "8"}
    assert resources["requests"] == {"cpu": "2", "nvidia.com/gpu": "8"}
    assert TEMPLATE["spec"]["containers"][0]["resources"]["limits"] == {"rdma/hca": "1"}, (
        "the template is kept"
    )


def test_each_pod_says_which_node_it_is_on_whatever_the_template_says() -> None:
    (container,) = pod_of(made())["containers"]
    assert container["args"] == ["fleet", "peer", "--as=$(NODE_NAME)", "--owner=pod:$(POD_UID)"]
    named = [one for one in container["env"] if one["name"] == "NODE_NAME"]
    assert named == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    own = {"spec": {"containers": [{"name": "pair", "image": "x", "command": ["/my/way"]}]}}
    assert "args" not in pod_of(made(options=replace(OPTIONS, template=own)))["containers"][0]


def templated(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The pod of a pair by a template with little in it."""
    whole = {"containers": [{"name": "pair", "image": "x", **container}], **spec}
    return pod_of(made(options=replace(OPTIONS, template={"metadata": {"labels": None}, "spec": whole})))


def test_what_a_template_says_is_kept_and_what_is_null_there_is_not_there() -> None:
    pod = templated(
        {"args": ["mine"], "env": [{"name": "A", "value": "1"}]}, terminationGracePeriodSeconds=30
    )
    assert (pod["terminationGracePeriodSeconds"], pod["containers"][0]["args"]) == (30, ["mine"])
    assert [one["name"] for one in pod["containers"][0]["env"]] == [
        "WIREWATCH_PAIR_PLAN", "NODE_NAME", "POD_UID", "A",
    ]  # fmt: skip
    bare = templated({"env": None, "resources": {"limits": None}})["containers"][0]
    assert bare["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert len(bare["env"]) == 3


def test_nothing_stays_when_no_process_is_left_to_delete_it() -> None:
    spec = made(options=replace(OPTIONS, owner=("probe-x", "u-1")))["spec"]
    assert spec["activeDeadlineSeconds"] == 120 + 60 + 30
    assert (spec["ttlSecondsAfterFinished"], spec["template"]["spec"]["terminationGracePeriodSeconds"]) == (
        600,
        5,
    )
    (owner,) = made(options=replace(OPTIONS, owner=("probe-x", "u-1")))["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "probe-x", "u-1")
    assert made()["metadata"]["ownerReferences"] == []


def test_a_queue_has_it_suspended_and_low_priority_lets_others_take_its_place() -> None:
    one = made(options=replace(OPTIONS, queue="low", priority="lowest"))
    assert (one["spec"]["suspend"], one["metadata"]["labels"][QUEUE]) == (True, "low")
    assert pod_of(one)["priorityClassName"] == "lowest"
    assert "suspend" not in made()["spec"]


def test_who_is_first_waits_for_as_long_as_the_other_may_take_to_start() -> None:
    work = plan_of(made()).work
    assert (work.patience, work.seconds) == (120.0, 140.0)
    long = plan_of(made(order=replace(ORDER, patience=7000.0))).work
    assert (long.patience, long.seconds) == (1800.0, 1820.0)
    work = replace(ORDER.work, seconds=3500.0)
    assert plan_of(made(order=replace(ORDER, work=work))).work.seconds == 3600.0


def test_they_meet_at_a_service_of_both_or_at_the_first_nodes_own_address() -> None:
    assert plan_of(made()).meet == "camp-r3-p0.probes.svc:28700"
    hosts = replace(OPTIONS, template={"spec": {**TEMPLATE["spec"], "hostNetwork": True}})
    assert plan_of(made(options=hosts)).meet == "10.0.0.1:28700"
    six = {**NODES, "n1": PairNode("n1", address="fd00::1")}
    assert plan_of(dict(job(ORDER, 0, "camp", six, hosts))).meet == "[fd00::1]:28700"
    one = made()
    one["metadata"]["uid"] = "u-9"
    told = service(one, 28700)
    assert told["metadata"]["ownerReferences"][0]["uid"] == "u-9"
    assert (told["spec"]["clusterIP"], told["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert told["spec"]["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items()


def test_processors_ask_for_no_gpus() -> None:
    resources = pod_of(made(order=replace(ORDER, work=PairWork("gloo", 2))))["containers"][0]["resources"]
    assert resources == TEMPLATE["spec"]["containers"][0]["resources"]


@each("wrong", [
    None, [], {}, {"spec": {}}, {"spec": {"containers": []}}, {"spec": {"containers": ["x"]}},
    {"spec": 5}, {"spec": {"containers": 5}}, {"spec": {"containers": {"a": 1}}},
    {"spec": {"containers": [{"name": "a"}]}}, {"spec": {"containers": [{"image": "a"}]}},
])  # fmt: skip
def test_a_template_that_cannot_be_used(wrong: object) -> None:
    with pytest.raises(TemplateError):
        checked(wrong)
    assert checked(TEMPLATE) is TEMPLATE


def node(name: str = "n1", gpus: int | str = 8, ready: str = "True", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"clique": "c1", **more.pop("labels", {})}}, "spec": more,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [
                {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"},
            ],
        },
    }  # fmt: skip


def without_conditions(conditions: list[dict[str, str]] | None) -> dict[str, Any]:
    made = node()
    return {**made, "status": {**made["status"], "conditions": conditions}}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> list[dict[str, str]]:
    return [{"key": key, "effect": effect, **({"value": value} if value else {})}]


@each(
    ("given", "used", "busy"),
    [
        (node(), 0, ""),
        (node(unschedulable=True), 0, "cordoned"),
        (node(ready="Unknown"), 0, "not ready"),
        (node(taints=taint("wirewatch.io/interconnect")), 0, "taint wirewatch.io/interconnect"),
        (node(taints=taint("nvidia.com/gpu", value="present")), 0, ""),
        (node(taints=taint("slow", "PreferNoSchedule")), 0, ""),
        (node(gpus=0), 0, "it has 0 nvidia.com/gpu"),
        (node(), 1, "pods have 1 of its 8 nvidia.com/gpu"),
        (node(gpus="many"), 0, "it has 0 nvidia.com/gpu"),
        (node(taints=None), 0, ""),
        (without_conditions(None), 0, "not ready"),
        (without_conditions([{"type": "MemoryPressure", "status": "True"}]), 0, "not ready"),
        (node(unschedulable=True, ready="False"), 0, "cordoned; not ready"),
    ],
)
def test_who_is_idle(given: dict[str, Any], used: int, busy: str) -> None:
    (one,) = nodes_of([given], OPTIONS, {"n1": used})
    assert (one.busy, one.address, one.leaf) == (busy, "10.0.0.1", "c1")


@each(
    ("tolerations", "tolerated"),
    [
        (None, False),
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"operator": "Exists", "key": "k"}], True),
        ([{"operator": "Exists", "key": "other"}], False),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"operator": "Exists", "effect": ""}], True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "k", "value": "v"}], True),
        ([{"key": "k", "value": "v", "operator": "Equal"}], True),
        ([{"key": "k", "value": "w"}], False),
        ([{"key": "k"}], False),
        ([{"key": "other", "value": "v"}], False),
        ([{"key": "k", "value": "v", "operator": "In"}], False),
        ([{"key": "other"}, {"operator": "Exists"}], True),
    ],
)
def test_a_taint_is_in_the_way_unless_the_template_tolerates_it(
    tolerations: list[dict[str, str]] | None, *, tolerated: bool
) -> None:
    template = {"spec": {**TEMPLATE["spec"], "tolerations": tolerations}}
    given = node(taints=taint("k", value="v"))
    (one,) = nodes_of([given], replace(OPTIONS, template=template), {})
    assert one.busy == ("" if tolerated else "taint k")


@each(
    ("gpus", "has", "used", "busy"),
    [
        (None, 1, 0, ""), (None, 0, 0, "it has 0 nvidia.com/gpu"), (0, 0, 0, ""), (0, 8, 8, ""),
        (8, 4, 0, "it has 4 nvidia.com/gpu"), (4, 8, 5, "pods have 5 of its 8 nvidia.com/gpu"),
    ],
)  # fmt: skip
def test_a_node_has_the_gpus_that_are_asked_for(gpus: int | None, has: int, used: int, busy: str) -> None:
    (one,) = nodes_of([node(gpus=has)], replace(OPTIONS, gpus=gpus), {"n1": used})
    assert (one.busy, one.gpus) == (busy, has)


def test_a_node_without_an_address_of_its_own_is_reached_by_its_name() -> None:
    given = node()
    del given["status"]["addresses"]
    (one,) = nodes_of([given], OPTIONS, {})
    assert one.address == "n1"


def test_a_node_with_room_for_what_is_asked_is_idle_and_its_first_label_is_its_leaf() -> None:
    (one,) = nodes_of([node(labels={"rack": "r7"})], replace(OPTIONS, gpus=4), {"n1": 4})
    assert (one.busy, one.leaf, one.gpus) == ("", "r7", 8)
    assert nodes_of([node(), node("n2")], replace(OPTIONS, nodes=("n2",)), {})[0].name == "n2"


def test_gpus_that_pods_hold_but_ours() -> None:
    def pod(name: str | None, phase: str = "Running", campaign: str = "") -> dict[str, Any]:
        limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        return {
            "metadata": {"labels": {CAMPAIGN: campaign}}, "status": {"phase": phase},
            "spec": {"containers": [limits, {}, limits], **({"nodeName": name} if name else {})},
        }  # fmt: skip

    pods = [
        pod("n1"),
        pod("n1", "Succeeded"),
        pod(None, "Pending"),
        pod("n2", campaign="mine"),
        pod("n2", "Pending"),
    ]
    assert used_gpus(pods, "nvidia.com/gpu", "mine") == {"n1": 4, "n2": 4}


def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name}, "spec": {"nodeName": name[:2]}, "status": {"phase": phase, **status}
    }  # fmt: skip


RUNNING: dict[str, Any] = {"containerStatuses": [{"state": {"running": {}}}]}
ENDED: dict[str, Any] = {"containerStatuses": [{"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}
IMAGE: dict[str, Any] = {
    "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]
}
FULL: dict[str, Any] = {"conditions": [{
    "type": "PodScheduled", "status": "False", "message": "0/9 nodes: Insufficient nvidia.com/gpu",
}]}  # fmt: skip
TAKEN: dict[str, Any] = {"conditions": [{
    "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for p9",
}]}  # fmt: skip
EVICTED = {"reason": "Evicted", "message": "memory"}


TERMINATED: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
EXITED: dict[str, Any] = {"terminated": {"exitCode": 3, "reason": "Error"}}


def states(*some: dict[str, Any]) -> dict[str, Any]:
    """Of several containers."""
    return {"containerStatuses": [{"state": one} for one in some]}


def scheduled(status: str, kind: str = "PodScheduled", **more: str) -> dict[str, Any]:
    return pod("n1a", "Pending", conditions=[{"type": kind, "status": status, **more}])


def test_why_the_cluster_ends_a_pod() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nowhere = {**pod("n1a", "Failed", **EVICTED), "spec": {}}
    assert disrupted([]) == disrupted([N1, pod("n2a", "Running", **ready)]) == ""
    assert disrupted([N1, pod("n2a", "Running", **TAKEN)]) == "n2: PreemptionByScheduler: for p9"
    assert disrupted([nowhere]) == "n1a: Evicted: memory"


@each(
    ("there", "gone", "said"),
    [
        ("n1 n2", "", ""), ("", "n1 n2", ""), ("", "", ""), ("n1", "n2", "the pod of n2 was deleted"),
        ("n2", "", "the pod of n1 was deleted"),
    ],
)  # fmt: skip
def test_a_pod_that_is_deleted_while_the_other_is_there_is_named(there: str, gone: str, said: str) -> None:
    pods = [pod(name, "Running") for name in there.split()]
    leaving = [pod(name, "Running") for name in gone.split()]
    for one in leaving:
        one["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert deleted([*pods, *leaving], ("n1", "n2")) == said


def with_condition(kind: str, **more: str) -> dict[str, Any]:
    return {**made(), "status": {"conditions": [{"type": kind, "status": "True", **more}]}}


WAIT, RUN, DONE, FAIL = PairState.WAITING, PairState.RUNNING, PairState.DONE, PairState.FAILED
QUEUED = made(options=replace(OPTIONS, queue="low"))
LATE = with_condition("Failed", reason="DeadlineExceeded", message="too long")
N1, N2 = pod("n1a", "Running", **RUNNING), pod("n2a", "Running", **RUNNING)


@each(
    ("given", "pods", "state", "said", "printed"),
    [
        (None, [], FAIL, "its Job is gone", ()),
        (QUEUED, [], WAIT, "queue low has not admitted it", ()),
        (made(), [], WAIT, "it has no pods yet: a quota, or an admission policy, may refuse them", ()),
        (made(), [pod("n1a", "Pending"), N2], WAIT, "its pods start", ()),
        (made(), [pod("n1a", "Pending", **FULL)], WAIT, "0/9 nodes: Insufficient nvidia.com/gpu", ()),
        (made(), [pod("n1a", "Pending", **IMAGE)], WAIT, "n1: ErrImagePull no such image", ()),
        (made(), [N2, N1], RUN, "", ("n1a", "n2a")),
        (with_condition("Complete"), [pod("n1a", "Succeeded", **ENDED)], DONE, "", ("n1a",)),
        (LATE, [], FAIL, "DeadlineExceeded: too long", ()),
        (LATE, [pod("n1a", "Failed", **ENDED)], FAIL, "n1: Error: exit code 3", ("n1a",)),
        (LATE, [pod("n1a", "Failed", **TAKEN)], FAIL, "n1: PreemptionByScheduler: for p9", ()),
        (LATE, [pod("n1a", "Failed", **EVICTED)], FAIL, "n1: Evicted: memory", ()),
        (
            LATE,
            [pod("n1a", "Failed", **states(TERMINATED, {"running": {}}, EXITED))],
            FAIL,
            "n1: Error: exit code 3",
            ("n1a",),
        ),
        (with_condition("Failed"), [], FAIL, "failed", ()),
        (
            {**made(), "status": {"conditions": [{"type": "Complete", "status": "False"}]}},
            [N1, N2],
            RUN,
            "",
            ("n1a", "n2a"),
        ),
        ({**made(), "spec": {"suspend": True}}, [N1, N2], WAIT, "it is suspended", ()),
        (made(), [N1, pod("n2a", "Pending", containerStatuses=None)], WAIT, "its pods start", ()),
        (
            made(),
            [pod("n1a", "Running", **states({"waiting": {}}, {"running": {}})), N2],
            RUN,
            "",
            ("n1a", "n2a"),
        ),
        (
            made(),
            [pod("n1a", "Failed", **states(TERMINATED)), pod("n2a", "Succeeded", **states({}))],
            RUN,
            "",
            ("n1a",),
        ),
        (made(), [scheduled("False", reason="Unschedulable")], WAIT, "Unschedulable", ()),
        (made(), [scheduled("False", reason="Unschedulable", message="full")], WAIT, "full", ()),
        (made(), [scheduled("False")], WAIT, "not scheduled", ()),
        (made(), [scheduled("True", message="on n1")], WAIT, "its pods start", ()),
        (made(), [scheduled("False", "Ready", message="not ready")], WAIT, "its pods start", ()),
    ],
)
def test_how_far_a_job_is(
    given: dict[str, Any] | None, pods: list[dict[str, Any]], state: PairState, said: str,
    printed: tuple[str, ...],
) -> None:  # fmt: skip
    assert job_progress(given, pods) == JobProgress(state, said, printed)
