"""A rehearsal that goes wrong is seen: timelines that must fail, and those that must not."""

from collections.abc import Mapping

from proof.rehearsal.expected import CRITICAL, TICKET, Alert, Ending, Row
from proof.rehearsal.judge import Limits, Times, judge, lives
from proof.rehearsal.receiver import Notice
from tests.rows import each

PAGE = Alert("WirewatchNVLinkDown", CRITICAL, (("gpu", "2"),))
LATER = Alert("WirewatchNVLinkDown", TICKET, (("gpu", "2"),))
ROW = Row((PAGE,), "nvlink", 3, ending=Ending.ACK)
TIMES = Times(began=100.0, over=200.0, acted=200.0)
LIMITS = Limits({str(PAGE): 20.0, str(LATER): 80.0}, {str(PAGE): 30.0, str(LATER): 200.0})


def labels(severity: str = CRITICAL, **more: str) -> Mapping[str, str]:
    return {"alertname": "WirewatchNVLinkDown", "severity": severity, "node": "n", "gpu": "2", **more}


FIRING, OVER = "firing", "resolved"


def notice(at: float, status: str, labels: Mapping[str, str], receiver: str = "page") -> Notice:
    return Notice(at, status == FIRING, receiver, labels, {})


def of(*told: tuple[float, str], **more: str) -> list[Notice]:
    return [notice(at, status, labels(**more)) for at, status in told]


GOOD = of((112.0, FIRING), (206.0, OVER))


def test_the_right_alert_that_fires_and_clears_in_time() -> None:
    judged = judge(ROW, GOOD, TIMES, LIMITS)
    assert judged.troubles == ()
    ((told),) = judged.told
    assert (told.alert, told.fired, told.cleared) == (str(PAGE), 12.0, 6.0)


def test_alertmanager_may_say_the_same_again() -> None:
    again = of((112.0, FIRING), (113.0, FIRING), (206.0, OVER), (207.0, OVER))
    assert judge(ROW, again, TIMES, LIMITS).troubles == ()
    assert [[n.at for n in life] for life in lives(again)] == [[112.0, 206.0]]


@each(
    ("told", "trouble"),
    [
        ([], "never fired"),
        (of((112.0, FIRING)), "was never cleared"),
        (of((131.0, FIRING), (206.0, OVER)), "11.0 s too late"),
        (of((112.0, FIRING), (231.0, OVER)), "1.0 s too late"),
        (of((96.0, FIRING), (206.0, OVER)), "4.0 s before its fault"),
        (of((112.0, FIRING), (190.0, OVER)), "10.0 s before its fault was over"),
        (of((112.0, FIRING), (150.0, OVER), (151.0, FIRING), (206.0, OVER)), "came and went 4 times"),
        (of((206.0, OVER)), "cleared without having fired"),
        (of((112.0, FIRING), (206.0, OVER), gpu="3"), "(gpu 3) fired, and should not"),
        (of((112.0, FIRING), (206.0, OVER), severity=TICKET), "ticket (gpu 2) fired, and should not"),
        (
            [*GOOD, *of((112.0, FIRING), (206.0, OVER), link="9")],
            "fired 2 times over",
        ),
        (
            [*GOOD, notice(150.0, FIRING, {"alertname": "WirewatchAgentDown", "severity": TICKET}, "ticket")],
            "WirewatchAgentDown ticket fired, and should not",
        ),
        (
            [notice(112.0, FIRING, labels(), "ticket"), notice(206.0, OVER, labels(), "ticket")],
            "went to ticket, not to page",
        ),
    ],
)  # fmt: skip
def test_whatever_is_not_as_the_row_says_is_a_trouble(told: list[Notice], trouble: str) -> None:
    assert any(trouble in one for one in judge(ROW, told, TIMES, LIMITS).troubles)


def test_what_may_come_besides_is_no_trouble_and_need_not_come() -> None:
    stale = Alert("WirewatchProbeStale", TICKET)
    row = Row(ROW.alerts, ROW.collector, ROW.looks, ending=ROW.ending, besides=(stale,))
    more = {**labels(TICKET), "alertname": stale.name}
    beside = [notice(150.0, FIRING, more, "ticket"), notice(300.0, OVER, more, "ticket")]
    assert judge(row, GOOD, TIMES, LIMITS).troubles == ()
    assert judge(row, [*GOOD, *beside], TIMES, LIMITS).troubles == ()
    assert judge(ROW, [*GOOD, *beside], TIMES, LIMITS).troubles != ()


def test_a_harmless_fault_raises_nothing() -> None:
    assert judge(Row(()), [], TIMES, LIMITS).troubles == ()
    assert judge(Row(()), GOOD, TIMES, LIMITS).troubles


def test_what_comes_later_comes_when_the_fault_is_over() -> None:
    row = Row((PAGE,), "nvlink", 3, ending=Ending.PROBATION, later=(LATER,))

    def with_ticket(at: float) -> list[Notice]:
        ticket = labels(TICKET)
        return [*GOOD, notice(at, FIRING, ticket, "ticket"), notice(300.0, OVER, ticket, "ticket")]

    judged = judge(row, with_ticket(266.0), TIMES, LIMITS)
    assert judged.troubles == ()
    assert [(told.fired, told.cleared) for told in judged.told] == [(12.0, 6.0), (66.0, 100.0)]
    assert any("before its fault" in one for one in judge(row, with_ticket(150.0), TIMES, LIMITS).troubles)


def test_what_an_operator_had_to_do_counts_from_then() -> None:
    acted = Times(100.0, 200.0, 260.0)
    (told,) = judge(ROW, of((112.0, FIRING), (265.0, OVER)), acted, LIMITS).told
    assert told.cleared == 5.0
