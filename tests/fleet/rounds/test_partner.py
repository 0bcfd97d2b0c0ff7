"""Two nodes of a pair that meet over the loopback interface, and what each sees when the other ends."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue

import pytest

from tests.fleet.rounds.test_peer import Node
from tests.patience import HANGS
from wirewatch.core.ports import Order
from wirewatch.core.probe import Probed
from wirewatch.probe.model import ProbeOptions
from wirewatch_fleet.rounds.partner import NotMet, Partner, meet
from wirewatch_fleet.rounds.peer import PeerRequest, with_partner
from wirewatch_fleet.rounds.plan import LONGEST_SECONDS, PairPlan, PairWork, pair_plan

WORK = PairWork("gloo", ranks=1, seconds=LONGEST_SECONDS, patience=min(HANGS, LONGEST_SECONDS / 2))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def plan(patience: float = WORK.patience) -> PairPlan:
    return pair_plan("a", "b", f"127.0.0.1:{free_port()}", replace(WORK, patience=patience))


def both(one: PairPlan, stack: ExitStack) -> tuple[Partner, Partner]:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(meet, one, "b", lambda: None)
        a = stack.enter_context(meet(one, "a", lambda: None))
        return a, stack.enter_context(other.result())


def heard(one: Partner) -> str | None:
    """What it sees of the other, once the kernel has brought it."""
    one.connection.settimeout(HANGS)
    return one.gone()


def test_each_has_the_others_name_and_nothing_is_wrong_while_both_are_there() -> None:
    with ExitStack() as stack:
        a, b = both(plan(), stack)
        assert (a.name, b.name) == ("b", "a")
        assert (a.gone(), b.gone()) == (None, None)


@pytest.mark.parametrize(("end", "why"), [
    (lambda one: one.tell(""), None),
    (lambda one: one.tell("refused: busy"), "b has ended: refused: busy"),
    (lambda one: one.connection.close(), "b has ended"),
])  # fmt: skip
def test_the_end_of_the_other_is_seen_with_its_reason_and_stays(
    end: Callable[[Partner], None], why: str | None
) -> None:
    with ExitStack() as stack:
        a, b = both(plan(), stack)
        end(b)
        assert heard(a) == why
        b.connection.close()
        assert (a.gone(), a.lost) == (why, why or "")


def test_nothing_can_be_told_to_one_that_is_gone() -> None:
    with ExitStack() as stack:
        a, b = both(plan(), stack)
        b.connection.close()
        for _ in range(3):
            a.tell("too late")
        assert heard(a) == "b has ended"


def test_the_port_is_free_again_once_both_have_met() -> None:
    one = plan()
    with ExitStack() as stack:
        both(one, stack)
        with socket.create_server(("", one.address[1])) as again:
            assert again.getsockname()[1] == one.address[1]


@pytest.mark.parametrize("name", ["a", "b"])
def test_one_that_does_not_come_is_named_with_the_place(name: str) -> None:
    one = plan(patience=0.01)
    other = "b" if name == "a" else "a"
    with pytest.raises(NotMet, match=f"^{other} has not come to {one.meet} within 0.01 s$"):
        meet(one, name, lambda: None)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_signal_ends_the_wait(name: str) -> None:
    asked: list[bool] = []

    def ended() -> str | None:
        asked.append(True)
        return "ended by SIGTERM" if asked[2:] else None

    with pytest.raises(NotMet, match=r"^ended by SIGTERM$"):
        meet(plan(), name, ended)


def test_a_port_that_is_taken_is_said() -> None:
    one = plan()
    with socket.create_server(("", one.address[1])), pytest.raises(NotMet, match="cannot be listened at: "):
        meet(one, "a", lambda: None)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n".ljust(64)])
def test_who_does_not_know_the_plan_is_sent_away_and_the_other_is_still_met(said: bytes) -> None:
    one = plan()
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        first = pool.submit(meet, one, "a", lambda: None)
        while True:
            try:
                stranger = stack.enter_context(socket.create_connection(one.address, HANGS))
                break
            except ConnectionRefusedError:
                continue
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        second = stack.enter_context(meet(one, "b", lambda: None))
        assert stack.enter_context(first.result()).name == "b"
        assert second.gone() is None


def test_two_plans_do_not_meet() -> None:
    one = plan(patience=0.3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, one, "a", lambda: None)
        with pytest.raises(NotMet):
            meet(replace(one, second="c"), "c", lambda: None)
        with pytest.raises(NotMet):
            first.result()


def answered(name: str, one: PairPlan, node: Node, end: str | None = None) -> tuple[str, str]:
    asked = PeerRequest(one, name, None, lambda: end)
    answer = with_partner(node.hardware, asked, ProbeOptions())
    return answer.cause, answer.why


def test_one_that_waits_in_vain_and_one_that_is_ended_say_so() -> None:
    one = plan(patience=0.01)
    assert answered("a", one, Node()) == ("failed", f"b has not come to {one.meet} within 0.01 s")
    assert answered("a", one, Node(), "ended by SIGINT") == ("preempted", "ended by SIGINT")


def test_the_other_hears_why_this_node_measures_nothing_and_nothing_where_it_did() -> None:
    for name, engine, why in (("refuses", "", "refused: "), ("measures", "gloo", "")):
        one, node = plan(), Node()
        node.probes.name = engine or "nccl"
        if not engine:
            one = replace(one, work=replace(one.work, engine="distributed", ranks=64))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(answered, "a", one, node)
            with meet(one, "b", lambda: None) as other:
                cause, said = answer.result()
                told = heard(other)
        assert (cause, told) == (("refused", f"a has ended: refused: {said}") if why else ("", None)), name


def test_a_node_ends_when_the_other_does_and_its_answer_names_that_one() -> None:
    one, node = plan(), Node()
    node.probes.name = "gloo"
    measured = node.probes.result
    assert measured is not None

    met = SimpleQueue[Partner]()

    def run(order: Order) -> Probed:
        met.get().connection.close()
        while (why := order.withdrawn()) is None:
            pass
        return replace(measured(order), outcome="preempted", why=why, document=None)

    node.probes.result = run
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(answered, "a", one, node)
        with meet(one, "b", lambda: None) as other:
            met.put(other)
            assert answer.result() == ("failed", "b has ended")
