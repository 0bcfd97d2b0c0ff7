"""What an operator may say, and what he may not."""

from pathlib import Path

import pytest

from tests.node.verdict.drawn import HUNG, D, Drawn, F, U
from tests.rows import each
from wirewatch.core.types import Finding, Health, OperatorNote, Subject
from wirewatch.verdict.ledger import Ledger, Stage
from wirewatch.verdict.node import LIVE, REPAIRED, SUPPRESSED, Standing, Verdict, judge_node
from wirewatch.verdict.orders import (
    OrderError,
    broken,
    end_of_repair,
    forget,
    gate,
    pick,
    repaired,
    seen_words,
    suppress,
    unsuppress,
)

DOWN, LATCH = "nvlink.link_down", "probe.wrong_data"
DAY = 86400.0


def sick(folder: Path | None = None, rule: str = DOWN, **options: object) -> Drawn:
    node = Drawn(folder, **options)  # type: ignore[arg-type]
    node.look()
    node.find(rule, node.gpu())
    node.look(times=3)
    return node


def gone(folder: Path | None = None, rule: str = DOWN, **options: object) -> Drawn:
    node = sick(folder, rule, **options)
    node.clear(rule, node.gpu())
    node.look()
    return node


# Acknowledging: seen, and no more than that


def test_an_xid_that_was_seen_twice_is_failed_still() -> None:
    """Before, "seen, looking at it" said twice made the node OK, and a job could start."""
    node = Drawn()
    node.event("xid.79", node.gpu())
    node.look()
    for _ in range(2):
        node.ack("xid.79", node.gpu())
        assert (node.health, node.verdict.job_ready) == (F, False)
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.takes_part, standing.repaired) == (LIVE, True, None)
    assert standing.seen == OperatorNote("bob", "seen, looking at it", node.at)
    assert "counts as FAILED as before, and no job may start" in seen_words(standing, node.verdict)
    assert f"`wirewatch findings repaired {standing.id}`" in seen_words(standing, node.verdict)


@each(("known", "now", "seen"), [(D, D, True), (F, D, True), (D, U, False), (D, F, False), (U, F, False)])
def test_what_was_seen_is_news_again_when_it_is_worse(known: Health, now: Health, *, seen: bool) -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), known)
    node.look()
    node.ack(DOWN, node.gpu())
    node.find(DOWN, node.gpu(), now)
    node.look()
    (standing,) = node.verdict.standings
    assert (standing.seen is not None) is seen


def test_what_was_seen_is_news_again_when_it_comes_back() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.look()
    node.ack(DOWN, node.gpu())
    node.clear(DOWN, node.gpu())
    assert node.look().standings == ()
    assert node.ledger.seen == {}
    node.find(DOWN, node.gpu(), D)
    assert node.look().standings[0].seen is None


def test_a_collector_that_cannot_read_does_not_end_what_was_seen() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.look()
    node.ack(DOWN, node.gpu())
    node.clear(DOWN, node.gpu())
    node.down["nvlink"] = HUNG
    node.look()
    assert len(node.ledger.seen) == 1
    del node.down["nvlink"]
    node.look()
    assert node.ledger.seen == {}


def test_that_it_was_seen_is_taken_back() -> None:
    node = sick()
    (standing,) = node.verdict.standings
    with pytest.raises(OrderError, match="is not acknowledged"):
        forget(node.ledger, standing)
    node.ack(DOWN, node.gpu())
    assert forget(node.ledger, standing).seen == {}


# Repaired


@each(
    ("lasting", "failed"),
    [("latched", True), ("on probation", False)],
)
def test_a_repair_opens_the_gate_of_what_is_failed_alone(lasting: str, *, failed: bool) -> None:
    node = gone(latch=("nvlink.*",))
    if lasting == "on probation":
        node.repaired(DOWN, node.gpu())
    (one,) = node.verdict.standings
    after = repaired(node.ledger, one, OperatorNote("ann", "x", node.at), node.mono)
    opened = gate(one, node.verdict, judge_node(node.state, after), end_of_repair(after, one, node.policy))
    assert bool(opened.failed) is failed
    if failed:
        with pytest.raises(OrderError, match="is FAILED; with this order") as told:
            opened.guard(yes=False)
        assert "counts as DEGRADED (probation), and the node is DEGRADED: jobs may start" in str(told.value)
        assert f"`wirewatch findings repaired {one.id} --undo` takes this back" in str(told.value)
    assert "takes this back" in opened.guard(yes=True)
    assert bool(failed) or opened.guard(yes=False)


def test_an_order_after_which_another_finding_still_keeps_jobs_away_wants_the_word_too() -> None:
    node = sick()
    node.find(DOWN, node.gpu("GPU-b"))
    node.look(times=3)
    one = node.verdict.standings[0]
    said = OperatorNote("ann", "x", node.at)
    after = judge_node(node.state, suppress(node.ledger, one, node.at + 60.0, said, node.policy, node.mono))
    opened = gate(one, node.verdict, after, "until then")
    assert after.health is F
    with pytest.raises(OrderError, match=r"is FAILED.*no job may start"):
        opened.guard(yes=False)


def test_what_is_milder_than_failed_wants_no_word() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.look()
    (one,) = node.verdict.standings
    said = OperatorNote("ann", "x", node.at)
    after = judge_node(node.state, suppress(node.ledger, one, node.at + 60.0, said, node.policy, node.mono))
    assert gate(one, node.verdict, after, "until then").guard(yes=False).endswith("; until then")


def test_a_repair_is_taken_back_at_each_stage() -> None:
    node = gone(latch=("nvlink.*",))
    (one,) = node.verdict.standings
    with pytest.raises(OrderError, match="nobody has said"):
        broken(node.ledger, one.id)
    for times in (1, 2):
        for _ in range(times):
            node.repaired(DOWN, node.gpu())
        assert node.health is (D if times == 1 else Health.OK)
        node.ledger = broken(node.ledger, one.id)
        assert node.look().health is F
        assert node.stage(DOWN, node.gpu()) is Stage.LATCHED


def test_a_repair_of_an_event_is_taken_back_while_the_log_tells_of_it() -> None:
    for rule, health in (("xid.79", F), ("xid.94", D)):
        node = Drawn()
        node.event(rule, node.gpu(), health)
        node.look()
        (one,) = node.verdict.standings
        node.repaired(rule, node.gpu())
        assert node.health < health
        node.ledger = broken(node.ledger, one.id[:4])
        assert node.look().health is health
        assert node.verdict.standings[0].repaired is None


def test_too_few_digits_take_no_repair_back() -> None:
    node = gone(latch=("nvlink.*",))
    node.repaired(DOWN, node.gpu())
    with pytest.raises(OrderError, match="nobody has said"):
        broken(node.ledger, node.verdict.standings[0].id[:3])


def test_what_is_measured_and_failed_cannot_be_talked_away() -> None:
    node = sick()
    with pytest.raises(OrderError, match=r"measured at this moment .*: repair it, or .* until a date"):
        node.repaired(DOWN, node.gpu())
    assert node.health is F


@pytest.mark.parametrize("health", [D, U])
def test_what_is_measured_and_never_was_failed_cannot_either(health: Health) -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), health)
    node.look()
    with pytest.raises(OrderError, match="measured at this moment"):
        node.repaired(DOWN, node.gpu())


def test_what_is_held_while_its_collector_is_blind_is_measured_still() -> None:
    node = sick()
    node.down["nvlink"] = HUNG
    node.look()
    with pytest.raises(OrderError, match="measured at this moment"):
        node.repaired(DOWN, node.gpu())


def test_what_is_latched_becomes_probation() -> None:
    node = gone(latch=("nvlink.*",))
    assert node.stage(DOWN, node.gpu()) is Stage.LATCHED
    node.repaired(DOWN, node.gpu())
    assert node.health is D
    (standing,) = node.verdict.standings
    assert standing.finding.evidence.endswith("; over, on probation; repaired by ann: cable exchanged")
    assert standing.repaired == OperatorNote("ann", "cable exchanged", node.at)
    assert node.look(seconds=3600.0, times=24).health is Health.OK


def test_what_is_not_yet_believed_to_be_gone_becomes_probation() -> None:
    node = gone()
    node.repaired(DOWN, node.gpu())
    assert node.health is D


def test_what_is_on_probation_is_over() -> None:
    node = gone()
    node.look(times=5)
    node.repaired(DOWN, node.gpu())
    assert node.health is Health.OK
    assert node.look(times=3).health is Health.OK
    assert node.stage(DOWN, node.gpu()) is Stage.REMEMBERED


def test_what_comes_back_after_a_word_is_failed_at_once() -> None:
    node = gone()
    node.repaired(DOWN, node.gpu())
    node.repaired(DOWN, node.gpu())
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    assert node.entry(DOWN, node.gpu()).repaired is None


def test_a_word_for_what_the_collector_calls_degraded_forgets_that_it_was_failed() -> None:
    node = gone()
    node.look(times=5)
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    node.repaired(DOWN, node.gpu())
    assert node.look().health is D
    assert node.ledger.entries == {}
    node.find(DOWN, node.gpu())
    assert node.look().health is F


def test_a_part_that_is_gone_for_good_is_talked_away_in_two_steps(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    part = node.gpu("GPU-b")
    node.fall_off("GPU-b")
    node.look(times=3)
    node.found.clear()
    node.restart()
    node.look()
    node.repaired("gpu.lost", part)
    assert node.look(times=9).health is D
    node.repaired("gpu.lost", part)
    node.restart()
    assert node.look(times=9).health is Health.OK


def test_what_was_forgotten_is_repaired_once() -> None:
    node = Drawn()
    node.event("xid.94", node.gpu(), D)
    node.look()
    node.repaired("xid.94", node.gpu())
    with pytest.raises(OrderError, match="repaired already"):
        node.repaired("xid.94", node.gpu())


def test_a_word_survives_a_restart(tmp_path: Path) -> None:
    node = gone(tmp_path, latch=("nvlink.*",))
    node.repaired(DOWN, node.gpu())
    node.restart()
    assert node.look().health is D
    assert node.entry(DOWN, node.gpu()).repaired == OperatorNote("ann", "cable exchanged", node.at - 35.0)


# Suppressing


def test_what_is_suppressed_takes_no_part_and_stays_visible() -> None:
    node = sick()
    node.suppress(DOWN, node.gpu())
    assert (node.health, node.verdict.job_ready, node.verdict.findings) == (Health.OK, True, ())
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.measured, standing.finding.health) == (SUPPRESSED, F, F)
    assert standing.suppression is not None
    assert standing.suppression.said == OperatorNote("ann", "waiting for a part", node.at)


def test_until_its_date() -> None:
    node = sick()
    node.suppress(DOWN, node.gpu(), seconds=60.0)
    assert node.look(times=3).health is Health.OK
    assert node.look().health is F
    assert node.ledger.suppressions == {}
    assert node.verdict.standings[0].stage == LIVE


@pytest.mark.parametrize(("known", "worse"), [(D, U), (D, F), (U, F)])
def test_what_gets_worse_takes_part(known: Health, worse: Health) -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), known)
    node.look()
    node.suppress(DOWN, node.gpu())
    assert node.look().health is Health.OK
    node.find(DOWN, node.gpu(), worse)
    assert node.look().health is worse
    node.find(DOWN, node.gpu(), known)
    assert node.look().health is (F if worse is F else Health.OK)


@pytest.mark.parametrize("milder", [D, U])
def test_what_gets_milder_stays_suppressed(milder: Health) -> None:
    node = sick()
    node.suppress(DOWN, node.gpu())
    node.find(DOWN, node.gpu(), milder)
    assert node.look().health is Health.OK


def test_all_stages_of_what_was_failed_are_covered() -> None:
    node = sick(latch_after=2)
    node.suppress(DOWN, node.gpu(), seconds=80 * DAY)
    for _ in range(2):
        node.clear(DOWN, node.gpu())
        assert node.look(times=10).health is Health.OK
        assert {s.stage for s in node.verdict.standings} == {SUPPRESSED}
        node.find(DOWN, node.gpu())
        assert node.look().health is Health.OK
    node.unsuppress(DOWN, node.gpu())
    assert node.health is F


def test_probation_that_is_suppressed_does_not_cover_its_return() -> None:
    node = gone()
    node.look(times=5)
    node.suppress(DOWN, node.gpu())
    assert node.health is Health.OK
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F


def test_another_part_is_not_suppressed() -> None:
    node = sick()
    node.suppress(DOWN, node.gpu())
    node.find(DOWN, node.gpu("GPU-b"))
    assert node.look().health is F


def test_a_suppression_follows_a_gpu_that_is_numbered_again_and_survives_a_restart(tmp_path: Path) -> None:
    node = sick(tmp_path)
    node.suppress(DOWN, node.gpu())
    node.clear(DOWN, node.gpu())
    node.gpus.reverse()
    node.restart()
    node.find(DOWN, node.gpu())
    assert node.look().health is Health.OK
    assert str(node.verdict.standings[0].finding.subject) == "GPU 1"


def test_blindness_can_be_suppressed_and_nothing_else_with_it() -> None:
    node = Drawn()
    node.down["pcie"] = HUNG
    node.look()
    node.suppress("pcie.blind", Subject())
    assert node.look().health is Health.OK
    node.find(DOWN, node.gpu())
    assert node.look().health is F


def test_what_is_suppressed_on_probation_is_over_with_a_word() -> None:
    node = gone()
    node.look(times=5)
    node.suppress(DOWN, node.gpu())
    node.repaired(DOWN, node.gpu())
    assert node.stage(DOWN, node.gpu()) is Stage.REMEMBERED


def test_taking_it_back() -> None:
    node = sick()
    node.suppress(DOWN, node.gpu())
    node.unsuppress(DOWN, node.gpu())
    assert node.health is F
    with pytest.raises(OrderError, match="is not suppressed"):
        node.unsuppress(DOWN, node.gpu())


def test_taking_back_what_it_does_not_cover_any_more() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.look()
    node.suppress(DOWN, node.gpu())
    node.find(DOWN, node.gpu(), F)
    assert node.look().health is F
    node.unsuppress(DOWN, node.gpu())
    assert node.ledger.suppressions == {}


@each(
    ("seconds", "message"),
    [
        (0.0, "the date is past"),
        (-1.0, "the date is past"),
        (float("nan"), "the date is past"),
        (91 * DAY, r"at most 90 days \(\[policy.verdict\] longest_suppression\)"),
        (float("inf"), "at most 90 days"),
    ],
)
def test_dates_that_are_none(seconds: float, message: str) -> None:
    node = sick()
    with pytest.raises(OrderError, match=message):
        node.suppress(DOWN, node.gpu(), seconds)
    assert node.health is F


def test_the_longest_there_is() -> None:
    node = sick()
    node.suppress(DOWN, node.gpu(), 90 * DAY)
    assert node.health is Health.OK


# Picking


def standing(gpu: int) -> Standing:
    part = Subject(gpu=str(gpu), uuid=f"GPU-{gpu}")
    return Standing(Finding(DOWN, F, part, "evidence", "action"), LIVE, "nvlink", F)


def test_an_id_is_picked_by_its_first_digits() -> None:
    node = sick()
    (wanted,) = node.verdict.standings
    for text in (wanted.id, wanted.id[:4], wanted.id.upper()):
        assert pick(node.verdict, text) == wanted


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "at least 4 digits"),
        ("abc", "at least 4 digits of the id: 'abc'"),
        ("zzzz", "no finding has an id that begins with 'zzzz'; see `wirewatch findings list`"),
        ("0123456789", "no finding has"),
    ],
)
def test_names_that_pick_nothing(name: str, message: str) -> None:
    with pytest.raises(OrderError, match=message):
        pick(sick().verdict, name)


def test_a_beginning_that_several_share_picks_none() -> None:
    by_start: dict[str, list[Standing]] = {}
    for number in range(2000):
        one = standing(number)
        by_start.setdefault(one.id[:4], []).append(one)
    start, several = next((start, found) for start, found in by_start.items() if len(found) > 1)
    verdict = Verdict(F, (), tuple(several))
    with pytest.raises(OrderError, match=f"{len(several)} findings have an id that begins with '{start}'"):
        pick(verdict, start)
    assert pick(verdict, several[0].id) == several[0]


def test_a_part_that_is_reported_twice_is_one_finding() -> None:
    verdict = Verdict(F, (), (standing(1), standing(1)))
    assert pick(verdict, standing(1).id) == standing(1)


def test_ids_are_of_rule_and_part_and_not_of_the_index() -> None:
    one = standing(1)
    assert one.id == "".join(c for c in one.id if c in "0123456789abcdef")
    assert len(one.id) == 8
    finding = one.finding
    moved = Standing(Finding(DOWN, D, Subject(gpu="5", uuid="GPU-1"), "other", "words"), LIVE, "nvlink", D)
    assert moved.id == one.id
    linked = Standing(Finding(DOWN, F, Subject(gpu="1", uuid="GPU-1", link="7"), "", ""), LIVE, "nvlink")
    nameless = [Standing(Finding(DOWN, F, Subject(gpu=g), "", ""), LIVE, "nvlink") for g in "12"]
    ids = {one.id, linked.id, *(n.id for n in nameless), standing(2).id}
    assert len(ids) == 5
    assert finding.rule == DOWN


def test_orders_do_not_change_what_they_were_given() -> None:
    node = sick()
    before = node.ledger
    one = pick(node.verdict, node.verdict.standings[0].id)
    said = OperatorNote("ann", "why", node.at)
    after = suppress(before, one, node.at + 60.0, said, node.policy)
    assert before.suppressions == {}
    assert judge_node(node.state, after).health is Health.OK
    assert judge_node(node.state, unsuppress(after, one)).health is F
    assert judge_node(node.state, Ledger()).health is F


def test_what_is_repaired_is_not_suppressed_besides() -> None:
    node = Drawn()
    node.event("xid.94", node.gpu(), D)
    node.look()
    node.repaired("xid.94", node.gpu())
    node.suppress("xid.94", node.gpu())
    assert node.verdict.standings[0].stage == REPAIRED
    node.unsuppress("xid.94", node.gpu())
    assert node.ledger.suppressions == {}


def test_a_suppression_of_what_is_not_there_now_is_shown_and_can_be_taken_back() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.look()
    node.suppress(DOWN, node.gpu())
    node.clear(DOWN, node.gpu())
    verdict = node.look()
    (standing,) = verdict.standings
    assert (standing.stage, standing.finding.health, standing.takes_part) == ("suppressed", Health.OK, False)
    assert verdict.findings == ()
    assert verdict.health is Health.OK
    with pytest.raises(OrderError, match="is not there now"):
        node.repaired(DOWN, node.gpu())
    assert unsuppress(node.ledger, standing).suppressions == {}
