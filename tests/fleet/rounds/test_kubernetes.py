"""The Kubernetes engine over HTTP: Jobs made, followed, read and deleted, and what refusals do."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.fleet.rounds.playedapi import PlayedApi
from tests.fleet.rounds.playedengine import answers
from wirewatch_fleet.rounds.answer import PeerAnswer, encode_answer, run_of
from wirewatch_fleet.rounds.engine import NodesError, PairState, RoundEngineError, RoundOrder
from wirewatch_fleet.rounds.jobs import CAMPAIGN, PairJobsOptions
from wirewatch_fleet.rounds.kubernetes import KubernetesRounds
from wirewatch_fleet.rounds.plan import PairWork

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "pair", "image": "x"}]}}
ORDER = RoundOrder(1, (("n1", "n2"), ("n3", "n4")), PairWork(), 60.0, 120.0)
FIRST, SECOND = "camp-r1-p0", "camp-r1-p1"


@dataclass
class Rig:
    api: PlayedApi
    options: PairJobsOptions = field(default_factory=lambda: PairJobsOptions("probes", TEMPLATE))
    now: float = 0.0

    def engine(self) -> KubernetesRounds:
        return KubernetesRounds(self.options, self.api.connect, lambda: self.now, "camp", settle=0.0)

    def started(self) -> KubernetesRounds:
        engine = self.engine()
        engine.members()
        engine.start(ORDER)
        return engine

    def polled(self, engine: KubernetesRounds) -> list[tuple[PairState, str]]:
        self.now += 2.0
        return [(one.state, one.said) for one in engine.poll()]


@pytest.fixture
def rig() -> Iterator[Rig]:
    with PlayedApi() as api:
        for name in ("n1", "n2", "n3", "n4"):
            api.node(name)
        yield Rig(api)


def test_a_round_from_jobs_to_answers_and_nothing_stays(rig: Rig) -> None:
    engine = rig.started()
    assert set(rig.api.kept["jobs"]) == set(rig.api.kept["services"]) == {FIRST, SECOND}
    assert {one["metadata"]["labels"][CAMPAIGN] for one in rig.api.kept["jobs"].values()} == {"camp"}
    assert [state for state, _ in rig.polled(engine)] == [PairState.WAITING] * 2
    rig.api.pods_of(FIRST, "Running")
    assert [state for state, _ in rig.polled(engine)] == [PairState.RUNNING, PairState.WAITING]
    both = answers("n1", "n2", sends=7e9).splitlines()
    rig.api.pods_of(FIRST, "Succeeded", both[1], both[2])
    rig.api.ends(FIRST)
    rig.api.ends(SECOND, "Failed", "DeadlineExceeded")
    (state, said), (other, why) = rig.polled(engine)
    assert (state, run_of("n1", "n2", said).sends) == (PairState.DONE, 7e9)
    assert (other, why.startswith("DeadlineExceeded")) == (PairState.FAILED, True)
    engine.cancel()
    assert not any(rig.api.kept[kind] for kind in ("jobs", "services", "pods"))
    engine.cancel()


def test_it_is_asked_now_and_then_alone_and_what_has_ended_no_more(rig: Rig) -> None:
    engine = rig.started()
    before = len(rig.api.asked)
    for _ in range(20):
        engine.poll()
    assert len(rig.api.asked) == before
    for name in (FIRST, SECOND):
        rig.api.ends(name, "Failed")
    rig.polled(engine)
    before = len(rig.api.asked)
    assert [state for state, _ in rig.polled(engine)] == [PairState.FAILED] * 2
    assert len(rig.api.asked) == before


def test_a_pair_that_refused_is_done_by_its_own_answer(rig: Rig) -> None:
    engine = rig.started()
    refusal = answers("n1", "n2").splitlines()[1]
    rig.api.pods_of(FIRST, "Failed", refusal)
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (PairState.DONE, f"{refusal}\n")


def test_the_last_word_of_a_pod_without_an_answer_is_reported(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Failed", "Traceback\nModuleNotFoundError: torch\n")
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (PairState.FAILED, "BackoffLimitExceeded; ModuleNotFoundError: torch")


GONE = PeerAnswer(
    "wirewatch.fleet-peer/1", 1e9, "n2", "n1", "n2", "failed", "connection closed by peer [10.0.0.1]"
)


def test_a_pod_that_was_preempted_is_told_before_what_its_partner_says_of_it(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Running")
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "p9"}
    rig.api.kept["pods"][f"{FIRST}-0"]["status"]["conditions"] = [taken]
    assert rig.polled(engine)[0] == (PairState.RUNNING, "")
    rig.api.pods_of(FIRST, "Failed", "", encode_answer(GONE))
    del rig.api.kept["pods"][f"{FIRST}-0"]
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (
        PairState.FAILED, "n1: PreemptionByScheduler: p9; n2: failed: connection closed by peer [10.0.0.1]",
    )  # fmt: skip


def test_a_pod_that_is_gone_is_told_before_what_its_partner_says_of_it(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Failed", "", encode_answer(GONE))
    del rig.api.kept["pods"][f"{FIRST}-0"]
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (
        PairState.FAILED, "the pod of n1 was deleted; n2: failed: connection closed by peer [10.0.0.1]",
    )  # fmt: skip


def test_what_is_said_of_a_pod_that_was_preempted_is_said_once(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Failed", "no answer", "none here")
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "p9"}
    rig.api.kept["pods"][f"{FIRST}-0"]["status"]["conditions"] = [taken]
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (PairState.FAILED, "n1: PreemptionByScheduler: p9; none here")


def test_when_no_pod_was_taken_away_a_failure_is_the_answer_of_its_node(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Failed", "", encode_answer(GONE))
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    assert rig.polled(engine)[0] == (PairState.DONE, f"\n{encode_answer(GONE)}")


def test_a_pod_that_was_preempted_in_an_earlier_round_is_not_told_again(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Running")
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "p9"}
    rig.api.kept["pods"][f"{FIRST}-0"]["status"]["conditions"] = [taken]
    rig.polled(engine)
    engine.cancel()
    engine.start(replace(ORDER, number=2))
    rig.api.ends("camp-r2-p0", "Failed", "DeadlineExceeded")
    assert rig.polled(engine)[0] == (PairState.FAILED, "DeadlineExceeded")


def test_output_that_cannot_be_read_is_no_answer_and_no_end_of_the_round(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Succeeded", *answers("n1", "n2").splitlines()[1:])
    rig.api.ends(FIRST)
    rig.api.refuse["GET", "pods/log"] = (500, "no kubelet")
    (state, said), _ = rig.polled(engine)
    assert (state, f"what {FIRST}-1 printed cannot be read" in said) == (PairState.FAILED, True)


def test_an_api_server_that_is_away_for_a_while_is_no_end_of_the_round(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Running")
    seen = [state for state, _ in rig.polled(engine)]
    rig.api.refuse["GET", "jobs"] = (503, "etcd is away")
    rig.now += 55.0
    assert [state for state, _ in rig.polled(engine)] == seen
    del rig.api.refuse["GET", "jobs"]
    rig.api.pods_of(FIRST, "Succeeded", *answers("n1", "n2").splitlines()[1:])
    rig.api.ends(FIRST)
    assert rig.polled(engine)[0][0] is PairState.DONE


def test_an_api_server_that_stays_away_in_a_round_is_reported(rig: Rig) -> None:
    engine = rig.started()
    rig.api.refuse["GET", "jobs"] = (503, "etcd is away")
    rig.polled(engine)
    rig.now += 60.0
    with pytest.raises(RoundEngineError, match="etcd is away"):
        rig.polled(engine)


def test_a_node_that_is_removed_between_rounds_is_left_out(rig: Rig) -> None:
    rig.options = replace(rig.options, nodes=("n1", "n2", "n3"))
    engine = rig.engine()
    assert len(engine.members()) == 3
    del rig.api.kept["nodes"]["n2"]
    assert [one.name for one in engine.members()] == ["n1", "n3"]


def test_the_end_of_many_jobs_may_take_longer_than_one_request(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = rig.started()
    monkeypatch.setattr("wirewatch_fleet.rounds.kubernetes.REQUEST", 1e-9)
    engine.cancel()
    assert not rig.api.kept["jobs"]


def test_a_job_that_is_made_while_all_are_deleted_goes_too(rig: Rig) -> None:
    engine = rig.started()
    rig.api.late = [rig.api.kept["jobs"].pop(SECOND)]
    engine.cancel()
    assert not rig.api.kept["jobs"]


def test_jobs_that_stay_are_said(rig: Rig) -> None:
    engine = rig.started()
    rig.api.late = [rig.api.kept["jobs"][SECOND]] * 10
    with pytest.raises(RoundEngineError, match=f"not deleted: {SECOND}"):
        engine.cancel()
    assert rig.api.asked.count(("DELETE", "jobs")) == 5


def test_a_job_that_is_being_deleted_is_not_waited_for(rig: Rig) -> None:
    """Its pods may take a while to end."""
    engine = rig.started()
    leaving = rig.api.kept["jobs"][SECOND]
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    rig.api.late = [leaving] * 2
    engine.cancel()
    assert rig.api.asked.count(("DELETE", "jobs")) == 1


def test_before_any_round_there_is_nothing_to_see_or_to_end(rig: Rig) -> None:
    engine = rig.engine()
    assert engine.poll() == ()
    engine.cancel()
    assert not rig.api.asked


def test_a_pair_whose_job_is_refused_has_failed_and_the_others_go_on(rig: Rig) -> None:
    rig.api.not_made = {FIRST}
    engine = rig.started()
    (first, why), (second, _) = [(one.state, one.said) for one in engine.poll()]
    assert (first, second) == (PairState.FAILED, PairState.WAITING)
    assert why.startswith("refused by the API server: ")
    assert "not this one" in why


def test_no_more_than_a_mebibyte_of_output_is_read(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Succeeded", *answers("n1", "n2").splitlines()[1:])
    rig.api.ends(FIRST)
    rig.polled(engine)
    assert {one["limitBytes"][0] for one in rig.api.queries if "limitBytes" in one} == {f"{1 << 20}"}


def test_a_node_that_refused_explains_what_its_partner_says_of_a_pod_that_is_gone(rig: Rig) -> None:
    engine = rig.started()
    refused = replace(GONE, name="n1", cause="refused", why="busy: process 12")
    rig.api.pods_of(FIRST, "Failed", encode_answer(refused), encode_answer(GONE))
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "p9"}
    rig.api.kept["pods"][f"{FIRST}-1"]["status"]["conditions"] = [taken]
    rig.api.ends(FIRST, "Failed", "BackoffLimitExceeded")
    state, said = rig.polled(engine)[0]
    assert (state, run_of("n1", "n2", said).failed) == (PairState.DONE, "n1: refused: busy: process 12")


def test_of_pods_that_ended_without_a_word_it_is_said(rig: Rig) -> None:
    engine = rig.started()
    rig.api.pods_of(FIRST, "Succeeded")
    rig.api.ends(FIRST)
    assert rig.polled(engine)[0] == (PairState.FAILED, "its pods ended without an answer")


def test_of_processors_no_pods_are_asked_about(rig: Rig) -> None:
    rig.options = replace(rig.options, gpus=0)
    rig.engine().members()
    assert ("GET", "pods") not in rig.api.asked


def test_pods_that_cannot_be_listed_for_another_reason_are_an_error(rig: Rig) -> None:
    rig.api.refuse["GET", "pods"] = (503, "etcd is away")
    with pytest.raises(RoundEngineError, match="etcd is away"):
        rig.engine().members()


LOW = {"spec": {**TEMPLATE["spec"], "priorityClassName": "low", "hostNetwork": True}}


@pytest.mark.parametrize(
    ("options", "order", "said"),
    [
        ({}, ORDER, [
            "namespace probes, with 8 nvidia.com/gpu each", "by the scheduler, priority the default;",
            "a headless Service, port 28700", "camp-r1-p0 on n1 and n2",
        ]),
        ({"queue": "q", "priority": "lowest", "port": 5}, ORDER, [
            "admitted by Kueue's queue q, priority lowest; they meet at a headless Service, port 5",
        ]),
        ({"template": LOW}, ORDER, ["priority low; they meet at the first node's address"]),
        ({"template": LOW, "priority": "lowest"}, ORDER, ["priority lowest;"]),
        ({}, replace(ORDER, pairs=(), work=PairWork("gloo")), ["with no GPUs each", "-p0 on A and B"]),
    ],
)  # fmt: skip
def test_what_would_be_started_is_said(
    rig: Rig, options: dict[str, Any], order: RoundOrder, said: list[str]
) -> None:
    rig.options = replace(rig.options, **options)
    lines = rig.engine().describe(order)
    assert len(lines) == 3
    assert all(any(one in line for line in lines) for one in said), lines


def test_a_job_that_was_deleted_has_failed(rig: Rig) -> None:
    engine = rig.started()
    del rig.api.kept["jobs"][SECOND]
    assert rig.polled(engine)[1] == (PairState.FAILED, "its Job is gone")


def test_when_no_job_may_be_made_the_round_ends_with_the_reason(rig: Rig) -> None:
    engine = rig.engine()
    engine.members()
    rig.api.refuse["POST", "jobs"] = (403, "exceeded quota: jobs")
    with pytest.raises(RoundEngineError, match=r"no Job of the round could be made: .*exceeded quota: jobs"):
        engine.start(ORDER)


def test_without_the_right_to_list_pods_the_scheduler_says_who_is_busy(rig: Rig) -> None:
    rig.api.refuse["GET", "pods"] = (403, "pods is forbidden")
    engine = rig.engine()
    assert [one.busy for one in engine.members()] == [""] * 4
    assert any("may not be listed" in line for line in engine.describe(ORDER))
    asked = rig.api.asked.count(("GET", "pods"))
    engine.members()
    assert rig.api.asked.count(("GET", "pods")) == asked, "what is forbidden is not asked again"


def test_gpus_of_pods_make_a_node_busy(rig: Rig) -> None:
    rig.api.kept["pods"]["job"] = {
        "metadata": {"name": "job"}, "status": {"phase": "Running"},
        "spec": {"nodeName": "n2", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }  # fmt: skip
    busy = {one.name: one.busy for one in rig.engine().members()}
    assert busy["n2"] == "pods have 1 of its 8 nvidia.com/gpu"
    assert busy["n1"] == ""


def test_a_node_that_is_not_there_and_an_api_server_that_is_away(rig: Rig) -> None:
    rig.options = replace(rig.options, nodes=("n1", "n9"))
    with pytest.raises(NodesError, match="the cluster has no node n9"):
        rig.engine().members()
    rig.api.refuse["GET", "nodes"] = (503, "etcd is away")
    with pytest.raises(RoundEngineError, match="etcd is away"):
        rig.engine().members()


def test_on_the_hosts_network_no_service_is_made(rig: Rig) -> None:
    template = {"spec": {**TEMPLATE["spec"], "hostNetwork": True}}
    rig.options = replace(rig.options, template=template)
    rig.started()
    assert (len(rig.api.kept["jobs"]), rig.api.kept["services"]) == (2, {})
