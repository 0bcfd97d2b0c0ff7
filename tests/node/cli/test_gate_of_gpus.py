"""A job on some GPUs of a shared node: `wirewatch check --gpus` and the gate without Python by one table."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.checks import check
from tests.node.cli.gatefile import GATE, HERE, SHELLS, SOCKET, Gated, asked, gate, written
from tests.node.cli.replies import finding, health, reply, server
from tests.node.cli.test_check_overlays import checked
from wirewatch.catalogue import rules
from wirewatch.cli.check.answer import Terms, line, nothing
from wirewatch.cli.check.daemon import StaleAnswer, grounds_of
from wirewatch.cli.check.gpus import SEVERAL, JobGpus, UnreadList, answer_for, named, owners
from wirewatch.core.types import Health
from wirewatch.documents.health import NodeGpu
from wirewatch.documents.state import HEALTH
from wirewatch.documents.verdictfile import plain_ascii

FAIL_ON = {
    None: None, "failed": frozenset({Health.FAILED}),
    "failed,unknown,degraded": frozenset({Health.FAILED, Health.UNKNOWN, Health.DEGRADED}),
}  # fmt: skip
UUIDS = [f"GPU-a{n}{n}a0000-1111-2222-3333-44445555666{n}" for n in range(8)]


def gpu(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "gpu": str(number), "minor": str(number), "uuid": UUIDS[number], "pci": f"0000:{number}b:00.0",
        "split": False, **changes,
    }  # fmt: skip


GPUS = [gpu(n) for n in range(8)]


def of(number: int, told: str = "failed", **changes: Any) -> dict[str, Any]:
    """A finding of a GPU."""
    return finding(told, subject={"gpu": str(number), "uuid": UUIDS[number], "link": "5"}, **changes)


def node(told: str, *findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A document of `/health` with its parts."""
    return health(time.time(), told, *findings, **{"base": "ok", "gpus": GPUS, **changes})


NODES: Mapping[str, dict[str, Any]] = {
    "GPU 5 failed": node("failed", of(5)),
    "GPU 5 failed, GPU 6 blind": node("failed", of(5), of(6, "unknown", rule="gpu.blind")),
    "GPUs 5 and 1": node(
        "failed", of(5), of(1, "degraded", rule="pcie.width"), of(5, "degraded", rule="gpu.hot")
    ),
    "a pair": node("failed", of(2, rule="straggler.pair", others=[UUIDS[5]])),
    "a pair of which one end is not known": node("failed", of(2, rule="straggler.pair", others=["GPU-gone"])),
    "a pair of an agent that names no other": node("failed", of(2, rule="straggler.pair")),
    "a GPU that is not known": node("failed", finding(subject={"gpu": "5", "uuid": "GPU-another"})),
    "a GPU without its UUID": node("failed", finding(subject={"gpu": "5"})),
    "a card": node("failed", finding(subject={"device": "mlx5_0", "port": "1"})),
    "an address that was a GPU's": node(
        "failed", finding(subject={"uuid": UUIDS[5], "device": "0000:5b:00"})
    ),
    "the node": node("failed", finding(subject={}), of(5, "degraded")),
    "a collector that has read nothing": node("failed", of(5), base="unknown"),
    "split": node("failed", of(5), gpus=[*GPUS[:7], gpu(7, split=True)]),
    "split is not known": node("failed", of(5), gpus=[*GPUS[:7], gpu(7, split=None)]),
    "device files in another order": node("failed", of(5), gpus=[gpu(n, minor=str(7 - n)) for n in range(8)]),
    "names that are not known": node("failed", of(5), gpus=[gpu(5, minor="", pci="", uuid=""), *GPUS[:5]]),
    "no GPUs": node("failed", of(5), gpus=[]),
    "an agent that says nothing of them": node("failed", of(5), gpus=None, base=None),
    "a document that has lost a finding": node("failed", of(5, "degraded")),
    "released": node("failed", of(5), released_until=time.time() + 900.4),
    "released where UNKNOWN starts jobs": node(
        "failed", of(5), released_until=time.time() + 900.4, fail_on=["failed"]
    ),
    "a fresh probe is required": node(
        "failed", of(5), probe={"at": 1.0, "age_seconds": 9e4, "fresh": False, "required": True}
    ),
    "well": node("ok"),
}
MIG = "MIG-8f1a2b3c-0000-1111-2222-333344445555"
LISTS = {
    "held": "5",
    "not held": "0-3",
    "the others": "4,5,6,7",
    "both ends": "2,5",
    "all": "0-7",
    "by UUID": UUIDS[5],
    "another by UUID": UUIDS[3],
    "by address": "0000:5B:00.0",
    "another by address": "00000000:3b:00.0",
    "without its domain": "3b:00.0",
    "by the beginning": "GPU-a5",
    "with blanks": " 0 ,\t1",
    "twice": "0,0,0,0-1",
    "an instance": f"MIG-{UUIDS[3]}/1/0",
    "an instance of it": f"MIG-{UUIDS[5]}/1/0",
    "a part": "3:1",
    "a MIG device": MIG,
    "mixed": f"0,{UUIDS[1].upper()},2b:00.0",
}
HOSTILE = {
    "empty": "",
    "blank": " \t",
    "a comma": ",",
    "empty in between": "0,,1",
    "at the end": "0,1,",
    "negative": "-1",
    "negative beside another": "0,-1,5",
    "a range that falls": "3-0",
    "a range of one end": "3-",
    "of two dashes": "0-3-5",
    "too far": "0-8",
    "far too far": "0-9999",
    "five digits": "00005",
    "octal": "010",
    "hexadecimal": "0x5",
    "signed": "+5",
    "a fraction": "0.5",
    "all": "all",
    "none": "none",
    "void": "void",
    "no files": "NoDevFiles",
    "a variable": "$SLURM_JOB_GPUS",
    "with spaces": "0 1 2",
    "semicolons": "0;1",
    "only the kind": "GPU-",
    "a common beginning": "GPU-a",
    "no such UUID": "GPU-dead",
    "MIG alone": "MIG-",
    "MIG of none": "MIG-GPU-dead/1/0",
    "half an instance": f"MIG-{UUIDS[5]}/1",
    "stars": "*",
    "a class": "[0-9]",
    "question": "?",
    "slashes": "/",
    "quotes": "'\"`$(reboot)",
    "lines": "0\n1",
    "a line": "\n",
    "umlaut": "\u00fc",
    "\u0665": "\u0665",
    "long": "9" * 5000,
    "many": ",".join(map(str, range(1000))),
    "many that are none": "x," * 1000,
    "gres": "gpu:5",
    "index": "gpu(IDX:0-3)",
    "slots": "0/1",
    "another's": "0000:ff:00.0",
    "two parts": "0:1:2",
    "no index": ":1",
    "no part": "1:",
    "deep": f"MIG-{UUIDS[5]}/1/0/2",
}


def said(document: dict[str, Any], job: JobGpus, fail_on: frozenset[Health] | None = None) -> Gated:
    """What `wirewatch check --cached` prints, and its exit code, for a daemon with this document."""
    health_document = HEALTH.validate_python(document)
    try:
        grounds = grounds_of(health_document, health_document.at)
    except StaleAnswer as error:
        grounds = nothing(f"{SOCKET}: {error}")
    answer = answer_for(job, grounds, Terms(fail_on), health_document.at)
    return Gated(answer.code, plain_ascii(line(answer)))


def both(file: Path, document: dict[str, Any], listed: str | None, fail_on: str | None = None) -> Gated:
    """What both say, which must be the same in each shell that is asked, of a file that is new for each."""
    expected = said(document, JobGpus(listed), FAIL_ON[fail_on])
    options = [*(("--without-gpus",) if listed is None else ("--gpus", listed))]
    options += ["--fail-on", fail_on] if fail_on else []
    for shell in asked(*options):
        assert gate(written(file, document), *options, shell=shell) == expected, (listed, fail_on, shell)
    return expected


@pytest.mark.parametrize("name", NODES)
def test_both_say_the_same_of_each_node(tmp_path: Path, name: str) -> None:
    file = tmp_path / "verdict"
    for listed in (None, "0-3", "5", "2", "0,1,2,3,4,6,7", "8", ""):
        for fail_on in FAIL_ON:
            both(file, NODES[name], listed, fail_on)


def test_both_say_the_same_of_each_list(tmp_path: Path) -> None:
    for name in ("GPU 5 failed", "split", "device files in another order", "well"):
        file = tmp_path / "verdict"
        for listed in (*LISTS.values(), *HOSTILE.values()):
            both(file, NODES[name], listed)


NOT_5 = "; GPU 5 is FAILED and not of this job"
ASIDE = f"OK{NOT_5}"
SEEN = "down in 3 polls. reset the GPU"
FAILED = f"FAILED nvlink.link_down GPU 5 link 5: {SEEN}"
PAIR = f"FAILED straggler.pair GPU 2 link 5: {SEEN}"
WHOLE = FAILED + "; the whole node counts: "
NOT_KNOWN = f"{WHOLE}its GPUs are not known"


@pytest.mark.parametrize(
    ("name", "listed", "code", "line"),
    [
        ("GPU 5 failed", "5", 2, FAILED),
        ("GPU 5 failed", "0-3", 0, ASIDE),
        ("GPU 5 failed", "0-7", 2, FAILED),
        ("GPU 5 failed", None, 0, "OK; GPU 5 is FAILED and left aside"),
        ("GPU 5 failed", "8", 2, f"{WHOLE}'8' is no GPU of this node"),
        ("GPU 5 failed", "", 2, f"{WHOLE}the list of GPUs is empty"),
        ("GPU 5 failed, GPU 6 blind", "0", 0, f"{ASIDE}, and 1 more"),
        ("GPU 5 failed, GPU 6 blind", "6", 3, f"UNKNOWN gpu.blind GPU 6 link 5: {SEEN}{NOT_5}"),
        ("GPUs 5 and 1", "0,1", 0, f"DEGRADED pcie.width GPU 1 link 5: {SEEN}{NOT_5}"),
        ("GPUs 5 and 1", "5", 2, f"{FAILED}; 1 more finding; GPU 1 is DEGRADED and not of this job"),
        ("a pair", "2", 2, f"{PAIR}{NOT_5}"),
        ("a pair", "5", 2, f"{PAIR}; GPU 2 is FAILED and not of this job"),
        ("a pair", "0,1,3,4,6,7", 0, "OK; GPU 2 is FAILED and not of this job, and 1 more"),
        ("a pair of which one end is not known", "0", 2, PAIR),
        ("a pair of an agent that names no other", "0", 2, PAIR),
        ("a GPU that is not known", "0", 2, FAILED.replace(" link 5", "")),
        ("a GPU without its UUID", "0", 0, ASIDE),
        ("a card", "0", 2, f"FAILED nvlink.link_down mlx5_0 port 1: {SEEN}"),
        ("an address that was a GPU's", "0", 2, f"FAILED nvlink.link_down 0000:5b:00: {SEEN}"),
        ("the node", "0", 2, f"FAILED nvlink.link_down node: {SEEN}; GPU 5 is DEGRADED and not of this job"),
        ("a collector that has read nothing", "0", 3, "UNKNOWN; GPU 5 is FAILED and not of this job"),
        ("split", "0-3", 2, f"{WHOLE}'0-3' may be the number of a MIG device"),
        ("split", "3:1", 0, ASIDE),
        ("split", MIG, 0, ASIDE),
        ("split is not known", "0", 2, f"{WHOLE}'0' may be the number of a MIG device"),
        ("GPU 5 failed", MIG, 2, f"{WHOLE}'{MIG}' is no GPU of this node"),
        ("device files in another order", "2", 2, FAILED),
        ("device files in another order", "5", 2, FAILED),
        ("device files in another order", "0,1", 0, ASIDE),
        ("no GPUs", "0", 2, NOT_KNOWN),
        ("an agent that says nothing of them", "0", 2, NOT_KNOWN),
        ("a document that has lost a finding", "0", 2, None),
        ("released", "0", 3, None),
        ("released", "5", 2, None),
        ("released where UNKNOWN starts jobs", "0", 3, None),
        ("a fresh probe is required", "0", 3, None),
        ("well", "8", 0, "OK; the whole node counts: '8' is no GPU of this node"),
        ("well", "0", 0, "OK"),
    ],
)
def test_a_finding_counts_for_the_job_whose_gpus_it_is_about(
    tmp_path: Path, name: str, listed: str | None, code: int, line: str | None
) -> None:
    found = both(tmp_path / "verdict", NODES[name], listed)
    assert found.code == code
    assert line is None or found.line == line


@pytest.mark.parametrize("name", LISTS)
def test_a_list_names_gpus(name: str) -> None:
    gpus = [NodeGpu(**one) for one in GPUS]
    held = {
        "held": {5},
        "not held": {0, 1, 2, 3},
        "the others": {4, 5, 6, 7},
        "both ends": {2, 5},
        "all": set(range(8)),
        "by UUID": {5},
        "another by UUID": {3},
        "by address": {5},
        "another by address": {3},
        "without its domain": {3},
        "by the beginning": {5},
        "with blanks": {0, 1},
        "twice": {0, 1},
        "an instance": {3},
        "an instance of it": {5},
        "a part": {3},
        "mixed": {0, 1, 2},
    }
    if name == "a MIG device":
        with pytest.raises(UnreadList):
            named(LISTS[name], gpus)
        gpus[4] = replace(gpus[4], split=True)
        assert named(LISTS[name], gpus) == {4}
    else:
        assert named(LISTS[name], gpus) == held[name]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_list_that_cannot_be_read_means_the_whole_node(tmp_path: Path, name: str) -> None:
    """Also where most of its names are of GPUs, and none of the sick one."""
    file = tmp_path / "verdict"
    found = both(file, NODES["GPU 5 failed"], HOSTILE[name])
    assert found.code == 2
    assert found.line.startswith(f"{WHOLE}")
    assert len(found.line) < 250


@given(st.lists(st.sampled_from([*LISTS.values(), *HOSTILE.values(), "7"]) | st.text(max_size=9), max_size=4))
def test_a_list_names_gpus_of_this_node_or_cannot_be_read(names: list[str]) -> None:
    gpus, why = [NodeGpu(**one) for one in GPUS], ""
    held: frozenset[int] = frozenset()
    try:
        held = named(",".join(names), gpus)
    except UnreadList as error:
        why = str(error)
    assert bool(held) is not bool(why)
    assert held <= set(range(8))
    assert why.isprintable()
    assert len(why) < 120


def test_a_thousand_names_of_gpus_are_read(tmp_path: Path) -> None:
    file = tmp_path / "verdict"
    long = ",".join([*map(str, range(4))] * 250)
    assert both(file, NODES["GPU 5 failed"], long).line == ASIDE
    assert both(file, NODES["GPU 5 failed"], ",".join([*UUIDS[:4]] * 250)).line == ASIDE


FINDINGS = st.lists(
    st.builds(
        of, st.integers(0, 7), st.sampled_from(["degraded", "unknown", "failed"]),
        rule=st.sampled_from(["nvlink.link_down", "straggler.pair", "topology.island"]),
        others=st.lists(st.sampled_from(UUIDS), max_size=2),
    ), max_size=4,
)  # fmt: skip


@given(FINDINGS, st.sets(st.integers(0, 7), min_size=1), st.sampled_from(["ok", "unknown"]))
def test_nothing_is_lost_between_jobs(findings: list[dict[str, Any]], mine: set[int], base: str) -> None:
    """Of two jobs that hold all GPUs, at least one is told the worst of the node; none is told worse."""
    worst = max(
        [base, *(one["health"] for one in findings)], key=["ok", "degraded", "unknown", "failed"].index
    )
    document = node(worst, *findings, base=base, job_ready=worst in {"ok", "degraded"})
    grounds = grounds_of(HEALTH.validate_python(document), document["at"])
    jobs = [JobGpus(",".join(map(str, held))) for held in (mine, set(range(8)) - mine) if held]
    answers = [answer_for(job, grounds, Terms(), document["at"]) for job in jobs]
    assert max(answer.health for answer in answers) == grounds.health
    for job, answer in zip(jobs, answers, strict=True):
        counted = [*answer.grounds.findings, *answer.left_aside]
        assert sorted(map(id, counted)) == sorted(map(id, grounds.findings))
        for one in answer.left_aside:
            assert not owners(one, grounds.gpus or ()) & named(job.listed or "", grounds.gpus or ())


def test_a_scheduler_that_counts_other_gpus_is_not_believed(tmp_path: Path) -> None:
    document = NODES["GPU 5 failed"]
    file = tmp_path / "verdict"
    for of, expected in (
        (8, Gated(0, ASIDE)),
        (7, Gated(2, f"{WHOLE}the scheduler counts 7 GPUs, the agent 8")),
        (0, Gated(2, f"{WHOLE}the scheduler counts 0 GPUs, the agent 8")),
    ):
        assert said(document, JobGpus("0-3", of)) == expected
        for shell in HERE:
            assert gate(written(file, document), "--gpus", "0-3", "--of", str(of), shell=shell) == expected


def without_parts(file: Path) -> Path:
    """The file as an older agent leaves it."""
    written(file, NODES["GPU 5 failed"]).with_name("verdict-gpus").unlink()
    return file


def test_the_file_of_an_older_agent_counts_for_the_whole_node(tmp_path: Path) -> None:
    for shell in HERE:
        for options in (("--gpus", "0"), ("--without-gpus",)):
            assert gate(without_parts(tmp_path / "verdict"), *options, shell=shell) == Gated(2, NOT_KNOWN)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("parts 9", "parts 8", "no 'end'"),
        ("parts 9", "parts 10", "no 'part'"),
        ("parts 9", "parts many", "'parts' is 'many'"),
        ("part ok OK\n", "part ok KO\n", "its line is not that of 'ok'"),
        ("failed FAILED", "ok OK ----", "its parts are not those of 'failed'"),
        ("0/0/gpu", "0-0-gpu", "'part' is '0-0-gpu"),
        ("verdict-gpus 1", "verdict-gpus 2", "a format that this gate does not know"),
        ("/whole/ failed FAILED", "/whole/ failed degrad", "its line is not that of 'failed'"),
    ],
)  # fmt: skip
def test_parts_that_are_damaged_are_never_ok(tmp_path: Path, old: str, new: str, why: str) -> None:
    def damaged() -> Path:
        """The file with this change, and an end that fits."""
        file = written(tmp_path / "verdict", NODES["GPU 5 failed"])
        whole = file.with_name("verdict-gpus").read_text("ascii")
        head, parts, tail = whole.partition("\nparts ")
        changed = whole.replace(old, new, 1) if old in head else head + f"{parts}{tail}".replace(old, new, 1)
        assert changed != whole
        body, _, end = changed.rpartition("end ")
        file.with_name("verdict-gpus").write_text(f"{body}end {end.split()[0]} {len(body)}\n", "ascii")
        return file

    for shell in HERE:
        found = gate(damaged(), "--gpus", "0", shell=shell)
        assert (found.code, why in found.line) == (3, True), found
        assert gate(damaged(), "--gpus", "0", "--defer", shell=shell).code == 75
        assert gate(damaged(), shell=shell).code == 2, "the other file is whole"


def test_no_part_of_the_file_is_ok(tmp_path: Path) -> None:
    length = 0
    while True:
        file = written(tmp_path / "verdict", NODES["well"])
        whole = file.with_name("verdict-gpus").read_bytes()
        if length >= len(whole):
            return
        file.with_name("verdict-gpus").write_bytes(whole[:length])
        found = gate(file, "--gpus", "0", shell=HERE[0])
        assert (found.code, "not a whole verdict" in found.line) == (3, True), length
        length += 20


def test_a_daemon_is_asked(tmp_path: Path) -> None:
    document = NODES["GPU 5 failed"]

    def behave(client: Any) -> None:
        client.recv(65536)
        at = {"at": time.time(), "polled_at": time.time()}
        client.sendall(reply(json.dumps({**document, **at}).encode(), "503 Unavailable"))

    with server(tmp_path, behave) as path:
        checked = check("--cached", "--socket", path, "--gpus", "0-3")
        assert (checked.code, checked.line) == (0, ASIDE)
        held = check("--cached", "--socket", path, "--gpus", "4,5", "--json")
        node_alone = check("--cached", "--socket", path, "--without-gpus", "--json").document
        unread = check("--cached", "--socket", path, "--gpus", "-1", "--json").document
    assert held.code == 2
    assert (held.document["gpus"], held.document["left_aside"], held.document["note"]) == (["4", "5"], [], "")
    assert (node_alone["gpus"], node_alone["findings"], node_alone["health"]) == ([], [], "ok")
    assert [one["subject"]["gpu"] for one in node_alone["left_aside"]] == ["5"]
    assert node_alone["note"] == "GPU 5 is FAILED and left aside"
    assert unread["gpus"] is None
    assert unread["note"] == "the whole node counts: '-1' is no GPU of this node"
    assert (unread["health"], unread["may_start"]) == ("failed", False)


def test_both_refuse_two_questions_at_once(tmp_path: Path) -> None:
    assert check("--gpus", "0", "--without-gpus").code == 64
    assert check("--of", "8").code == 64
    written(tmp_path / "verdict", NODES["well"])
    for shell in HERE:
        for words in (
            ("--gpus", "0", "--without-gpus"),
            ("--without-gpus", "--gpus", "0"),
            ("--gpus",),
            ("--of", "8"),
            ("--gpus", "0", "--of", "-1"),
            ("--gpus", "0", "--of", "99999"),
        ):
            done = subprocess.run([*SHELLS[shell], GATE, *words], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (64, ""), done


def test_rules_of_several_gpus_are_rules() -> None:
    """A rule that is renamed would count for its first GPU alone."""
    names = {rule.name for rule in rules()}
    assert names >= SEVERAL


@pytest.mark.parametrize("overlay", ["nvlink-link-down", "gpu-lost", "xid-79", "straggler-source"])
def test_a_fault_of_a_gpu_of_a_recording_leaves_the_others(overlay: str) -> None:
    grounds = checked(overlay).grounds
    (sick,) = {one.subject["gpu"] for one in grounds.findings if one.health == "failed"}
    others = ",".join(str(n) for n in range(8) if str(n) != sick)
    assert [
        answer_for(JobGpus(listed), grounds, Terms(None), time.time()).code for listed in (others, sick)
    ] == [0, 2]


@pytest.mark.parametrize("overlay", ["gpu-missing", "sxid-fatal", "ib-device-gone", "probe-slow"])
def test_a_fault_that_is_no_single_gpus_counts_for_every_job(overlay: str) -> None:
    whole = checked(overlay)
    assert whole.code > 1
    for listed in ("0", "7"):
        assert answer_for(JobGpus(listed), whole.grounds, Terms(None), time.time()).code == whole.code


def test_a_slow_pair_names_its_other_end() -> None:
    overlay = ("--replay", "demo-dgx-h200", "--overlay", "straggler-pair")
    pair = next(
        one for one in check(*overlay, "--json").document["findings"] if one["rule"] == "straggler.pair"
    )
    assert (pair["subject"]["gpu"], len(pair["others"])) == ("6", 1)
    assert check(*overlay, "--gpus", "0-5").code == 0
    assert check(*overlay, "--gpus", "7").code == 2
