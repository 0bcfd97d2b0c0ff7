"""A siege that goes wrong is seen: wrong verdicts, gaps, figures above their limits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.siege import results
from proof.siege.__main__ import BOOKS
from proof.siege.attack import GAP, Attack, Siege, carry_out, every, lasting
from proof.siege.attacks.rings import Sampled
from proof.siege.daemon import SiegeError
from proof.siege.page import page
from proof.siege.results import BEFORE, Figure, Outcome
from proof.siege.watch import SUCCESS, Polls, Seen, Verdict
from tests.rows import each

LINK = {"rule": "nvlink.link_down", "subject": {"gpu": "2", "uuid": "GPU-2", "link": "7"}}
BLIND = {"rule": "agent.blind", "subject": {}}


@each(
    ("health", "findings", "wrong", "beside"),
    [
        ("failed", [LINK], 0, set()),
        ("failed", [LINK, BLIND], 0, {"agent.blind"}),
        ("unknown", [LINK], 1, set()),
        ("failed", [BLIND], 1, {"agent.blind"}),
        ("failed", [{**LINK, "subject": {"gpu": "3", "link": "7"}}], 1, set()),
    ],
)
def test_a_verdict_is_right_by_its_health_and_by_the_name_of_the_broken_part(
    health: str, findings: list[dict[str, Any]], wrong: int, beside: set[str]
) -> None:
    verdict = Verdict()
    verdict.see({"health": health, "findings": findings})
    assert (verdict.wrong, verdict.beside) == (wrong, beside)


def test_the_worst_gap_between_polls_is_that_of_each_collector_and_a_clock_that_was_set_is_none() -> None:
    polls = Polls()
    for stamp in (100.0, 101.0, 107.5, 1e9, 5.0, 6.0):
        polls.see(f'{SUCCESS}{{collector="gpu"}} {stamp}\n{SUCCESS}{{collector="pcie"}} 100.0\n')
    assert polls.gaps == {"gpu": 6.5, "pcie": 0.0}


def test_the_time_without_an_answer_counts_from_the_last_good_one() -> None:
    seen = Seen(last=0.001)
    seen.bad("timed out")
    assert seen.document()["gap"] > 1.0
    assert (seen.document()["asked"], seen.document()["errors"], seen.document()["first"]) == (
        1,
        1,
        "timed out",
    )


def test_an_attack_that_breaks_is_one_that_does_not_hold(tmp_path: Path) -> None:
    def breaks(_siege: Siege) -> None:
        raise SiegeError("no right verdict")

    outcome = carry_out(Attack("breaks", "", breaks), tmp_path, short=True)
    assert (outcome.holds, outcome.troubles) == (False, ["SiegeError: no right verdict"])


def test_a_figure_above_its_limit_is_a_trouble(tmp_path: Path) -> None:
    siege = Siege(tmp_path, short=True, outcome=Outcome("one"))
    siege.most("lanes' worst gap", GAP, "s", GAP)
    assert siege.outcome.holds
    siege.most("lanes' worst gap", GAP + 0.1, "s", GAP)
    assert siege.outcome.troubles == ["lanes' worst gap 5.1 s, at most  5 s allowed"]


def test_a_descriptor_is_left_where_every_look_has_it() -> None:
    late = {3: "socket:[9]"}
    assert lasting([{3: "socket:[7]", 4: "pipe:[1]"}, {4: "pipe:[1]"}, {**late, 4: "pipe:[1]"}]) == {
        (4, "pipe:[1]")
    }
    assert lasting([{3: "socket:[7]"}, late]) == set()
    assert lasting([late, late]) == {(3, "socket:[9]")}


def jobs(*communicators: tuple[int, ...], name: str = "pid:7") -> dict[str, Any]:
    """A document with a job of these communicators, each by the processes of its ranks."""
    made = [{"here": [{"own_pid": pid} for pid in pids]} for pids in communicators]
    job = {"name": name, "owners": [], "communicators": made}
    return {"jobs": [{"evidence": {"job": {"why": "missing"}}}, {"evidence": {"job": job}}]}


@pytest.mark.parametrize(
    ("document", "shown", "forged"),
    [
        (jobs((7,), (3, 8)), 1, set()),
        (jobs((3, 8)), 0, set()),
        (jobs((7, 3)), 1, {"2 ranks of the victim's communicator"}),
        (jobs((7,), name="slurm:4711"), 1, {"slurm:4711"}),
    ],
)
def test_a_forged_rank_and_a_forged_name_are_seen(
    document: dict[str, Any], shown: int, forged: set[str]
) -> None:
    seen = Sampled(7)
    seen.judge(document)
    assert (seen.shown, seen.forged) == (shown, forged)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    kept = {"one": Outcome("one", 1.5, "2026-11-22", [Figure("p50", 3.0, "ms")], ["wrong"])}
    results.save(tmp_path / "results.json", kept)
    assert results.load(tmp_path / "results.json") == kept
    assert results.load(tmp_path / "none.json") == {}


def test_the_page_shows_each_attack_with_what_was_wrong_before_and_is_now(tmp_path: Path) -> None:
    attacks, before = every(BOOKS), results.load(BEFORE)
    assert set(before) == set(attacks)
    after = {name: replace(one, troubles=[]) for name, one in before.items()}
    after["accept"] = replace(after["accept"], troubles=["memory grew 99 MiB"])
    sample = {
        "hours": 1.0, "pss": 1 << 26, "descriptors": 9, "threads": 5, "database": 1 << 20, "findings": 1,
        "probes": 6,
    }  # fmt: skip
    held = {"minutes": 1.0, "daemon": 1 << 26, "nvml": 1 << 25, "descriptors": 12, "threads": 9}
    day = {
        "samples": [sample], "scrapes": 480, "failed": 0, "seconds": 60.0, "grown": [["x.py:1", 1024, 3]],
        "running": [held],
    }  # fmt: skip
    soak = tmp_path / "soak.json"
    soak.write_text(json.dumps(day), "utf-8")
    made = page(attacks, after, before, soak)
    (row,) = [line for line in made.splitlines() if line.startswith("| **accept**")]
    assert "memory grew 99 MiB" in row
    assert row.split("|")[-2].strip() == "**no**"
    assert f"{len(attacks) - 1} of {len(attacks)} attacks hold" in made
