"""`wirewatch fleet probe` on an engine that is played, and `wirewatch fleet peer` without another."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner, Result

from tests.fleet.rounds.playedengine import WORK, PlayedEngine
from wirewatch.core.words import utc
from wirewatch_fleet.cli import peer as peer_module
from wirewatch_fleet.cli.pairs import LISTED, SUSPECTS
from wirewatch_fleet.cli.peer import peer
from wirewatch_fleet.cli.probe import (
    ENGINES,
    GLOO_SIZE,
    START_SECONDS,
    ShownCampaign,
    _names,
    probe,
    slurm_engine,
)
from wirewatch_fleet.pairs.document import ROUNDS
from wirewatch_fleet.rounds.answer import PeerAnswer
from wirewatch_fleet.rounds.engine import NodesError, PairNode, PairState, RoundEngineError
from wirewatch_fleet.rounds.jobs import LEAFS
from wirewatch_fleet.rounds.kubernetes import KubernetesRounds
from wirewatch_fleet.rounds.plan import encode_pair_plan, pair_plan
from wirewatch_fleet.rounds.slurm import SlurmRounds

NODES = tuple(PairNode(f"n{number}", gpus=8, leaf=f"leaf{number // 4}") for number in range(8))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedEngine:
    engine = PlayedEngine(NODES, after=0.0)
    monkeypatch.setitem(ENGINES, "slurm", lambda *_: engine)
    return engine


def ran(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(probe, ["--slurm", "--results", str(folder / "rounds.json"), *options])


def test_a_dry_run_says_what_and_starts_nothing(tmp_path: Path, played: PlayedEngine) -> None:
    played.nodes = (*NODES[:7], replace(NODES[7], busy="allocated"))
    result = ran(tmp_path, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "7 nodes in 2 leafs: n[0-6]" in result.output
    assert "not idle, in no pair: n7 (allocated)" in result.output
    assert "on each of 8 rails, on all at once" in result.output
    assert (
        "at most 8 rounds, each 60 s to be admitted, 60 s to run: 16 min, 8,960 GPU-seconds" in result.output
    )
    assert not played.orders
    assert not (tmp_path / "rounds.json").exists()


def test_leafs_come_from_a_file_too(tmp_path: Path, played: PlayedEngine) -> None:
    """As Slurm's topology.conf names them; a node that it has no line of keeps what the scheduler says."""
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-6]\nSwitchName=s Switches=a,b\n")
    assert "8 nodes in 3 leafs" in ran(tmp_path, "--dry-run", "--leafs", str(file)).output
    played.nodes = BARE
    assert "8 nodes in 2 leafs" in ran(tmp_path, "--dry-run", "--leafs", str(file)).output
    for text, said in (
        ("SwitchName=a Nodes=x1", "has these nodes"), ("SwitchName=a Nodes=n[1-", "n[1-"),
        ("\xff", "--leafs"),
    ):  # fmt: skip
        file.write_bytes(text.encode("latin-1"))
        result = ran(tmp_path, "--dry-run", "--leafs", str(file))
        assert (result.exit_code, said in result.output) == (2, True), result.output


BARE = tuple(replace(one, leaf="") for one in NODES)


@pytest.mark.parametrize(
    ("nodes", "options", "said"),
    [
        (NODES, (), [
            "8 nodes in 2 leafs: n[0-7]", "round 1 (across), 4 pairs: n",
            "each pair sends 256 MiB each way on each of 8 rails, on all at once, then an all_reduce, by",
            "by distributed: 20 s at most on 2 x 8 GPUs",
            "16 min, 10,240 GPU-seconds; mostly 3 rounds and small ones",
            "with three partners: 12 more rounds at most, 320 GPU-seconds for a pair in each",
            "one more round of all pairs, with 4 queue pairs for a connection",
        ]),
        (BARE, ("--rounds", "1"), ["8 nodes: n[0-7]", "round 1 (random)", "; mostly 1 rounds"]),
        (NODES, ("--engine", "gloo"), [
            "each pair sends 4 MiB each way, then an all_reduce, by gloo: 20 s at most on 2 x 1 processes",
            "16 min, no GPU;",
        ]),
        (NODES, ("--engine", "gloo", "--gpus", "2", "--size", "1M"), [
            "sends 1 MiB each way on each of 2 rails", "2 x 2 processes",
        ]),
        ((*NODES[:7], replace(NODES[7], gpus=4, busy="allocated")), ("--nodelist", "n[0-7]", "--gpus", "8"), [
            "not idle, in no pair: n7 (allocated)", "8 nodes in 2 leafs",
        ]),
        ((*NODES[:7], replace(NODES[7], gpus=None)), ("--gpus", "8"), ["2 x 8 GPUs"]),
        ((*NODES, PairNode("n9", gpus=4, busy="down")), (), ["2 x 8 GPUs", "n9 (down)"]),
    ],
    ids=["all", "no leafs", "processors", "some processors", "one is busy", "not counted", "other GPUs"],
)  # fmt: skip
def test_a_dry_run_says_what_each_pair_would_do(
    tmp_path: Path, played: PlayedEngine, nodes: tuple[PairNode, ...], options: Sequence[str],
    said: Sequence[str],
) -> None:  # fmt: skip
    played.nodes = nodes
    result = ran(tmp_path, "--dry-run", *options)
    assert result.exit_code == 0, result.output
    assert all(one in result.output for one in said), result.output
    assert ("not idle" in result.output) is any(one.busy for one in nodes)
    assert " already, from " not in result.output


def test_one_round_that_is_kept_is_said(tmp_path: Path, played: PlayedEngine) -> None:
    assert ran(tmp_path, "--rounds", "1").exit_code == 0
    result = ran(tmp_path, "--dry-run")
    assert f"1 round is in {tmp_path / 'rounds.json'} already, from " in result.output
    assert "at most 7 rounds" in result.output
    assert len(played.orders) == 1


def test_what_the_workers_are_told(tmp_path: Path, played: PlayedEngine) -> None:
    ran(tmp_path, "--rounds", "1", "--interface", "eth1", "--env", "A=b=c", "--limit", "30s", "--wait", "5s")
    (order,) = played.orders
    assert order.work.environment == {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1", "A": "b=c"}
    assert (order.work.seconds, order.work.patience, order.seconds, order.patience) == (30.0, 8.0, 70.0, 5.0)


def test_with_results_of_the_same_nodes_it_goes_on_whatever_is_busy_by_now(
    tmp_path: Path, played: PlayedEngine
) -> None:
    assert ran(tmp_path, "--rounds", "1").exit_code == 0
    played.nodes = (*NODES[:7], replace(NODES[7], busy="allocated"))
    assert "8 nodes in 2 leafs" in ran(tmp_path, "--dry-run").output
    assert ran(tmp_path, "--dry-run", "--nodelist", "n[0-7]").exit_code == 0


def test_healthy_ends_with_0_and_keeps_what_was_measured(tmp_path: Path, played: PlayedEngine) -> None:
    result = ran(tmp_path)
    assert result.exit_code == 0, result.output
    assert "OK: 0 named, 0 open, by 12 of 12 runs of pairs in 3 rounds" in result.output
    kept = ROUNDS.validate_json((tmp_path / "rounds.json").read_bytes())
    assert [len(one.runs) for one in kept.rounds] == [4, 4, 4]
    assert played.orders[0].work.ranks == 8


def test_a_slow_node_is_printed_as_fleet_pairs_prints_it(tmp_path: Path, played: PlayedEngine) -> None:
    played.slow = {"n3": 5e9}
    result = ran(tmp_path, "--json")
    assert result.exit_code == 2, result.output
    assert [one["name"] for one in json.loads(result.stdout)["named"]] == ["n3"]
    again = ran(tmp_path)
    assert again.exit_code == 2
    assert "nothing is left to measure" in again.output
    assert " rounds are in " in again.output
    measured = utc(ROUNDS.validate_json((tmp_path / "rounds.json").read_bytes()).at)
    assert f"rounds.json already, from {measured} on; another file begins afresh" in again.output


def test_no_more_rounds_run_than_are_asked_for(tmp_path: Path, played: PlayedEngine) -> None:
    result = ran(tmp_path, "--rounds", "1")
    assert [order.number for order in played.orders] == [1]
    assert "at most 1 rounds" in result.stdout


def test_what_failed_is_reported_with_its_reason(tmp_path: Path, played: PlayedEngine) -> None:
    played.stuck = {"n5": (PairState.FAILED, "NODE_FAIL")}
    result = ran(tmp_path, "--rounds", "3")
    assert result.exit_code == 3
    assert "NODE_FAIL" in result.stderr
    assert "no answer in any run: n5" in result.stdout


@pytest.mark.parametrize(
    ("options", "nodes", "said"),
    [
        ((), NODES[:1], "it takes two idle nodes\n"),
        ((), (NODES[0], replace(NODES[1], busy="down")), "it takes two idle nodes; n1 is down"),
        ((), tuple(replace(one, gpus=0) for one in NODES), "different numbers of GPUs"),
        ((), (*NODES, PairNode("n9")), "different numbers of GPUs"),
        ((), tuple(replace(one, gpus=None) for one in NODES), "counts no GPUs there: give --gpus"),
        ((), (*NODES, PairNode("n9", gpus=4)), "different numbers of GPUs"),
        (("--env", "A"), NODES, "--env A: not NAME=VALUE"),
        (("--env", "A B=1"), NODES, "not the name of a variable"),
        (("--gpus", "9"), NODES, "--gpus 9: n0 has 8"),
        (("--limit", "2h"), NODES, "7200 s are more than the 3600 s"),
        (("--size", "32G"), NODES, "32 GiB are more than the 16 GiB"),
        (("--least", "nan"), NODES, "'nan' is not a number from 1 to 50"),
    ],
)
def test_what_cannot_be_meant(
    tmp_path: Path, played: PlayedEngine, options: Sequence[str], nodes: tuple[PairNode, ...], said: str
) -> None:
    played.nodes = nodes
    result = ran(tmp_path, *options)
    assert result.exit_code == 2
    assert said in result.output


def test_results_of_another_fleet_are_not_gone_on_with(tmp_path: Path, played: PlayedEngine) -> None:
    assert ran(tmp_path).exit_code == 0
    played.nodes = NODES[:4]
    result = ran(tmp_path, "--nodelist", "n[0-3]")
    assert "is of other nodes or another seed" in result.output
    assert "is of other nodes or another seed" in ran(tmp_path, "--seed", "1").output


@pytest.mark.parametrize(
    "options", [("--size", "64M"), ("--gpus", "4"), ("--engine", "gloo"), ("--env", "NCCL_IB_HCA=mlx5_1")]
)
def test_rounds_of_other_work_are_not_gone_on_with(
    tmp_path: Path, played: PlayedEngine, options: Sequence[str]
) -> None:
    assert ran(tmp_path, "--rounds", "1").exit_code == 0
    result = ran(tmp_path, *options)
    assert result.exit_code == 2
    assert "was measured with another engine, size, number of GPUs or environment" in result.output
    assert len(played.orders) == 1
    assert ran(tmp_path, "--limit", "40s").exit_code == 0


def test_slow_all_alike_is_seen_beside_an_earlier_result(tmp_path: Path, played: PlayedEngine) -> None:
    past = tmp_path / "past.json"
    past.write_text(ran(tmp_path, "--json").stdout, "utf-8")
    (tmp_path / "rounds.json").unlink()
    played.slow = {one.name: 5e9 for one in NODES}
    result = ran(tmp_path, "--past", str(past))
    assert result.exit_code == 2, result.output
    assert "all alike: sends on all rails across leafs are 50.0% slower than 10.0 GB/s" in result.output


@pytest.mark.parametrize("text", ["", "  ", "'"])
def test_the_command_of_the_nodes_is_words_of_a_shell(tmp_path: Path, text: str) -> None:
    result = ran(tmp_path, "--command", text)
    assert result.exit_code == 2
    assert "Error: --command" in result.output


def test_nodes_that_are_not_there_are_the_users_fault(
    tmp_path: Path, played: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Any:
        raise NodesError("Slurm has no node n9 there")

    monkeypatch.setattr(played, "members", refused)
    result = ran(tmp_path)
    assert (result.exit_code, "Error: Slurm has no node n9 there" in result.output) == (2, True)


def test_an_engine_must_be_named(tmp_path: Path) -> None:
    assert "say what runs the pairs" in CliRunner().invoke(probe, ["--results", str(tmp_path / "x")]).output


def test_a_scheduler_that_does_not_answer_ends_with_69(
    tmp_path: Path, played: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Any:
        raise RoundEngineError("Slurm: no controller")

    monkeypatch.setattr(played, "members", refused)
    result = ran(tmp_path)
    assert (result.exit_code, result.stderr) == (69, "wirewatch: Slurm: no controller\n")


def test_a_scheduler_that_goes_away_in_a_round_leaves_the_rounds_so_far(
    tmp_path: Path, played: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed() -> None:
        raise RoundEngineError("no answer in time")

    monkeypatch.setattr(played, "cancel", failed)
    result = ran(tmp_path)
    assert result.exit_code == 69
    kept = tmp_path / "rounds.json"
    assert result.stderr.endswith(f"wirewatch: no answer in time; {kept} has the rounds so far\n")
    assert len(ROUNDS.validate_json(kept.read_bytes()).rounds) == 1


def test_results_that_cannot_be_kept_are_one_line(tmp_path: Path, played: PlayedEngine) -> None:
    result = CliRunner().invoke(probe, ["--slurm", "--results", str(tmp_path / "no" / "x.json")])
    assert result.exit_code == 2
    assert "No such file or directory" in result.output
    assert not played.orders


def to_kubernetes(folder: Path) -> Result:
    template = folder / "pair.json"
    template.write_text('{"spec": {"containers": [{"name": "pair", "image": "wirewatch"}]}}', "utf-8")
    options = ["--kubernetes", "--namespace", "probes", "--pod-template", str(template), "--dry-run"]
    return CliRunner().invoke(probe, [*options, "--results", str(folder / "rounds.json")])


@pytest.mark.parametrize(
    ("host", "token", "uid", "owner"),
    [
        ("10.0.0.1", True, "u-1", ("probe-x", "u-1")),
        ("", True, "u-1", None),
        ("10.0.0.1", False, "u-1", None),
        ("10.0.0.1", True, "", None),
    ],
    ids=["in a pod", "not in a cluster", "without a ServiceAccount", "a pod that does not know itself"],
)
def test_what_a_pod_starts_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, token: bool, uid: str,  # noqa: FBT001
    owner: tuple[str, str] | None,
) -> None:  # fmt: skip
    monkeypatch.setattr("wirewatch_fleet.cli.probe.CREDENTIALS", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in {"KUBERNETES_SERVICE_HOST": host, "POD_NAME": "probe-x", "POD_UID": uid}.items():
        if value:
            monkeypatch.setenv(name, value)
    if token:
        (tmp_path / "token").write_text("t", "ascii")
    template = tmp_path / "pair.json"
    template.write_text('{"spec": {"containers": [{"name": "pair", "image": "x"}]}}', "utf-8")
    chosen = {
        "namespace": "probes", "pod_template": template, "queue": "", "priority_class": "", "selector": "",
        "leaf_label": (), "gpu_resource": "nvidia.com/gpu", "engine": "gloo", "gpus": 2, "port": 28700,
    }  # fmt: skip
    engine = ENGINES["kubernetes"](("n[1-2]",), chosen)
    assert isinstance(engine, KubernetesRounds)
    assert (engine.options.owner, engine.options.nodes, engine.options.gpus) == (owner, ("n1", "n2"), 0)


CHOSEN: dict[str, Any] = {
    "namespace": "probes", "queue": "", "priority_class": "", "selector": "", "leaf_label": (),
    "gpu_resource": "nvidia.com/gpu", "engine": "distributed", "gpus": 2, "port": 28700,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, {"namespace": "probes", "gpus": 2, "leafs": LEAFS, "nodes": ("n1", "n2")}),
        ({"engine": "gloo"}, {"gpus": 0}), ({"leaf_label": ("my/leaf",)}, {"leafs": ("my/leaf",)}),
        ({"namespace": ""}, {"namespace": "of-the-pod"}),
    ],
    ids=["as it is", "processors hold no GPU", "leafs by another label", "the namespace of the pod"],
)  # fmt: skip
def test_jobs_of_kubernetes_are_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: dict[str, Any]
) -> None:
    monkeypatch.setattr("wirewatch_fleet.cli.probe.CREDENTIALS", str(tmp_path))
    (tmp_path / "namespace").write_text("of-the-pod\n", "ascii")
    template = tmp_path / "pair.json"
    template.write_text('{"spec": {"containers": [{"name": "pair", "image": "x"}]}}', "utf-8")
    engine = ENGINES["kubernetes"](("n[1-2]", "n2"), {**CHOSEN, "pod_template": template, **given})
    assert isinstance(engine, KubernetesRounds)
    assert {name: getattr(engine.options, name) for name in said} == said


def test_options_of_kubernetes_are_one_text_each_but_for_labels_of_leafs() -> None:
    texts = ("gpu_resource", "priority_class", "queue", "selector", "namespace")
    options = {one.name: one for one in probe.params if isinstance(one, click.Option)}
    assert [name for name in (*texts, "leaf_label") if options[name].multiple] == ["leaf_label"]
    assert [options[name].default for name in texts] == ["nvidia.com/gpu", "", "", "", ""]
    assert _names(()) == ()


@pytest.mark.parametrize(
    ("template", "nodes", "namespace", "why"),
    [
        (None, "n1", "x", "--kubernetes takes --pod-template"),
        ("absent", "n1", "x", "absent: No such file or directory"),
        ("latin", "n1", "x", "latin: it is not text"),
        ("list", "n1", "x", "list: not a pod template: "), ("torn", "n1", "x", "torn: not a pod template: "),
        ("good", "n[1", "x", "--nodelist: "), ("good", "n1", "", "--namespace: outside of a pod"),
    ],
)  # fmt: skip
def test_what_is_no_job_of_kubernetes_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str | None,
    nodes: str,
    namespace: str,
    why: str,
) -> None:
    monkeypatch.setattr("wirewatch_fleet.cli.probe.CREDENTIALS", str(tmp_path / "no-pod"))
    good = b'{"spec": {"containers": [{"name": "pair", "image": "x"}]}}'
    for name, content in {"latin": b"\xff", "list": b"[]", "torn": good[:9], "good": good}.items():
        (tmp_path / name).write_bytes(content)
    file = None if template is None else tmp_path / template
    with pytest.raises(click.UsageError) as caught:
        ENGINES["kubernetes"]((nodes,), {**CHOSEN, "pod_template": file, "namespace": namespace})
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(why)
    assert "None" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "job"),
    [({}, "77"), ({"partition": "gpu"}, ""), ({"reservation": "night"}, "")],
    ids=["of this allocation", "in a partition", "in a reservation"],
)
def test_pairs_are_steps_of_an_allocation_unless_they_are_to_run_elsewhere(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], job: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    texts = dict.fromkeys(("partition", "reservation", "account", "qos", "gres"), "")
    engine = slurm_engine(("n1",), {**texts, "command": "srun-me 'a b'", "port": 28700, **given})
    assert isinstance(engine, SlurmRounds)
    assert (engine.options.job, engine.options.command) == (job, ("srun-me", "a b"))
    monkeypatch.delenv("SLURM_JOB_ID")
    engine = slurm_engine(("n1",), {**texts, "command": "x", "port": 28700, **given})
    assert isinstance(engine, SlurmRounds)
    assert engine.options.job == ""


@pytest.mark.usefixtures("played")
def test_a_signal_ends_the_rounds_and_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_rounds(_engine: Any, made: Any, _options: Any, view: ShownCampaign) -> Any:
        assert not view.ended()
        view.ended_by.append("SIGTERM")
        assert view.ended()
        return made

    monkeypatch.setattr("wirewatch_fleet.rounds.campaign.run_rounds", run_rounds)
    result = ran(tmp_path)
    assert result.exit_code == 3
    assert result.stderr.endswith("ended by SIGTERM; 0 rounds are kept, the same command goes on\n")


def test_limits_of_rounds_are_as_they_are_documented() -> None:
    assert (START_SECONDS, GLOO_SIZE, LISTED, SUSPECTS) == (40.0, 4 << 20, 8, 10)


def test_rounds_wait_for_as_long_as_they_say(tmp_path: Path) -> None:
    view = ShownCampaign(tmp_path / "rounds.json")
    began = view.mono()
    view.wait(0.02)
    assert view.mono() - began >= 0.02


CLUSTER = """
current-context: c
contexts: [{name: c, context: {cluster: a, user: u}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
"""


@pytest.mark.parametrize(
    "config",
    [
        "", "{}", "[1, 2]", "3", "contexts: [", "\t", "kind: Config", "current-context: c\ncontexts: 5",
        CLUSTER, f"{CLUSTER}users: []",
        f"{CLUSTER}users: [{{name: u, user: {{exec: {{command: nonesuch-program}}}}}}]",
        f"{CLUSTER}users: [{{name: u, user: {{token: t}}}}]",
    ],
)  # fmt: skip
def test_no_way_to_the_api_server_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(config, "utf-8")
    monkeypatch.setenv("KUBECONFIG", str(file))
    result = to_kubernetes(tmp_path)
    assert result.exit_code == 69, result.output
    (line,) = result.stderr.splitlines()
    assert "the API server: " in line
    assert caplog.records == []


def test_without_a_configuration_of_kubectl_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = to_kubernetes(tmp_path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (69, 1)
    assert "there is no ~/.kube/config, the configuration of kubectl" in result.stderr


PLAN = encode_pair_plan(pair_plan("a", "b", "127.0.0.1:28700", WORK))


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [("{}", "a", "not a plan"), (PLAN, "c", "c is neither a nor b"), ("x", "a", "Invalid JSON")],
)
def test_a_peer_without_a_plan_that_it_can_follow(text: str, name: str, said: str) -> None:
    result = CliRunner().invoke(peer, ["--plan", text, "--as", name])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "job", "owner"),
    [((), "", None), ((), "7", "slurm:7"), (("--owner", "pod:u-1"), "7", "pod:u-1")],
    ids=["nobody's", "its own job's", "the owner that is named"],
)
@pytest.mark.parametrize(("cause", "code"), [("", 0), ("refused", 3)])
def test_a_peer_answers_for_its_owner_and_ends_with_3_where_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch,
    words: Sequence[str],
    job: str,
    owner: str | None,
    cause: Literal["", "refused"],
    code: int,
) -> None:
    asked: list[tuple[str, str | None]] = []

    def measured(_config: Any, _plan: Any, name: str, owner: str | None) -> PeerAnswer:
        asked.append((name, owner))
        return PeerAnswer("wirewatch.fleet-peer/1", 1e9, name, "a", "b", cause=cause)

    monkeypatch.setattr(peer_module, "_measured", measured)
    monkeypatch.setenv("SLURM_JOB_ID", job)
    result = CliRunner().invoke(peer, ["--plan", PLAN, "--as", "b", *words])
    assert (result.exit_code, asked) == (code, [("b", owner)])
    assert json.loads(result.stdout)["name"] == "b"
