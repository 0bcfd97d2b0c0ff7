"""A job on some GPUs of a shared node: `wirewatch check --gpus` and the gate without Python by one table."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.checks import check
from tests.node.cli.gatefile import HERE, SOCKET, Gated, gate, verdict_of, written
from tests.node.cli.replies import Behaviour, finding, health, reply, server
from wirewatch.cli.check.answer import Terms, line, nothing
from wirewatch.cli.check.daemon import StaleAnswer, grounds_of
from wirewatch.cli.check.gpus import SEVERAL, JobGpus, UnreadList, answer_for, named, owners, parts
from wirewatch.core.types import Health
from wirewatch.documents.health import CheckFinding, NodeGpu
from wirewatch.documents.state import HEALTH
from wirewatch.documents.verdictfile import plain_ascii

FAIL_ON = {
    None: None, "failed": frozenset({Health.FAILED}),
    "failed,unknown,degraded": frozenset({Health.FAILED, Health.UNKNOWN, Health.DEGRADED}),
}  # fmt: skip
UUIDS = [f"GPU-{n}{n}aa0000-1111-2222-3333-44445555666{n}" for n in range(8)]


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


def told_now(document: Mapping[str, Any]) -> Behaviour:
    def behave(client: Any) -> None:
        client.recv(65536)
        at = {"at": time.time(), "polled_at": time.time()}
        client.sendall(reply(json.dumps({**document, **at}).encode(), "503 Unavailable"))

    return behave


NODES: Mapping[str, dict[str, Any]] = {
    "GPU 5 failed": node("failed", of(5)),
    "GPU 5 failed, GPU 6 blind": node("failed", of(5), of(6, "unknown", rule="gpu.blind")),
    "GPUs 5 and 1": node("failed", of(5), of(1, "degraded", rule="pcie.width"), of(5, "degraded", rule="gpu.hot")),
    "a pair": node("failed", of(2, rule="straggler.pair", others=[UUIDS[5]])),
    "a pair of which one end is not known": node("failed", of(2, rule="straggler.pair", others=["GPU-gone"])),
    "a pair of an agent that names no other": node("failed", of(2, rule="straggler.pair")),
    "a GPU that is not known": node("failed", finding(subject={"gpu": "5", "uuid": "GPU-another"})),
    "a GPU without its UUID": node("failed", finding(subject={"gpu": "5"})),
    "a card": node("failed", finding(subject={"device": "mlx5_0", "port": "1"})),
    "an address that was a GPU's": node("failed", finding(subject={"uuid": UUIDS[5], "device": "0000:5b:00"})),
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
    "a fresh probe is required": node(
        "failed", of(5), probe={"at": 1.0, "age_seconds": 9e4, "fresh": False, "required": True}
    ),
    "well": node("ok"),
}  # fmt: skip
LISTS = {
    "held": "5", "not held": "0-3", "the others": "4,5,6,7", "both ends": "2,5", "all": "0-7", "by UUID": UUIDS[5],
    "another by UUID": UUIDS[3], "by address": "0000:5B:00.0", "another by address": "00000000:3b:00.0",
    "without its domain": "3b:00.0", "by the beginning": "GPU-55", "with blanks": " 0 ,\t1", "twice": "0,0,0,0-1",
    "an instance": f"MIG-{UUIDS[3]}/1/0", "an instance of it": f"MIG-{UUIDS[5]}/1/0", "a part": "3:1",
    "a MIG device": "MIG-8f1a2b3c-0000-1111-2222-333344445555", "mixed": f"0,{UUIDS[1].upper()},2b:00.0",
}  # fmt: skip
HOSTILE = {
    "empty": "", "blank": " \t", "a comma": ",", "empty in between": "0,,1", "at the end": "0,1,",
    "negative": "-1", "negative beside another": "0,-1,5", "a range that falls": "3-0", "a range of one end": "3-",
    "of two dashes": "0-3-5", "too far": "0-8", "far too far": "0-9999", "five digits": "00005", "octal": "010",
    "hexadecimal": "0x5", "signed": "+5", "a fraction": "0.5", "all": "all", "none": "none", "void": "void",
    "no files": "NoDevFiles", "a variable": "$SLURM_JOB_GPUS", "with spaces": "0 1 2", "semicolons": "0;1",
    "only the kind": "GPU-", "a common beginning": "GPU-0", "no such UUID": "GPU-dead",
    "MIG alone": "MIG-", "MIG of none": "MIG-GPU-dead/1/0", "half an instance": f"MIG-{UUIDS[5]}/1",
    "stars": "*", "a class": "[0-9]", "question": "?", "slashes": "/", "quotes": "'\"`$(reboot)", "lines": "0\n1",
    "a line": "\n", "umlaut": "\u00fc", "\u0665": "\u0665", "long": "9" * 5000, "many": ",".join(map(str, range(1000))),
    "many that are none": "x," * 1000, "gres": "gpu:5", "index": "gpu(IDX:0-3)", "slots": "0/1", "another's": "0000:ff:00.0",
    "two parts": "0:1:2", "no index": ":1", "no part": "1:", "deep": f"MIG-{UUIDS[5]}/1/0/2",
}  # fmt: skip


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
    """What both say, which must be the same in each shell."""
    expected = said(document, JobGpus(listed), FAIL_ON[fail_on])
    options = [*(("--without-gpus",) if listed is None else ("--gpus", listed))]
    options += ["--fail-on", fail_on] if fail_on else []
    for shell in HERE:
        assert gate(file, *options, shell=shell) == expected, (listed, fail_on, shell)
    return expected


@pytest.mark.parametrize("name", NODES)
def test_both_say_the_same_of_each_node(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "verdict", NODES[name])
    for listed in (None, "0-3", "5", "2", "0,1,2,3,4,6,7", "8", ""):
        for fail_on in FAIL_ON:
            both(file, NODES[name], listed, fail_on)


def test_both_say_the_same_of_each_list(tmp_path: Path) -> None:
    for name in ("GPU 5 failed", "split", "device files in another order", "well"):
        file = written(tmp_path / "verdict", NODES[name])
        for listed in (*LISTS.values(), *HOSTILE.values()):
            both(file, NODES[name], listed)
