"""What the rounds of pairs on real schedulers must say of slowed wires: no answers are no proof."""

from typing import Any

from proof.fleet.pairs.faults import LONGEST, Slowed, judged, shortened
from tests.rows import each

N3 = {"kind": "node", "name": "n3", "peer": "", "losses": [{"way": "sends", "loss": 0.5}]}
HEALTHY = Slowed("nothing", lambda _: None, frozenset())
SHARED = Slowed("hashed uplinks", lambda _: None, frozenset(), uplinks=2)
LOST = {"across": True, "loss": 0.3, "slow": 8, "runs": 16, "alone": 4, "alone_slow": 0}
SENDS = Slowed("n3 sends slowly", lambda _: None, frozenset({("n3", "sends")}))


def found(*named: dict[str, Any], answered: int = 12, collisions: tuple[object, ...] = ()) -> dict[str, Any]:
    return {
        "named": [*named], "answered": answered, "runs": 12, "rounds": 3, "collisions": collisions
    }  # fmt: skip


@each(
    ("one", "result", "good"),
    [
        (HEALTHY, found(), True), (HEALTHY, found(answered=11), True), (HEALTHY, found(answered=0), False),
        (HEALTHY, found(N3), False), (SENDS, found(N3), True), (SENDS, found(), False),
        (SENDS, found(N3, answered=6), False),
        (SHARED, found(collisions=(LOST,)), True), (SHARED, found(), False),
        (SHARED, found(N3, collisions=(LOST,)), False), (HEALTHY, found(collisions=(LOST,)), False),
        (SHARED, found(collisions=({**LOST, "across": False},)), False),
        # Runs alone that are slow as often are other traffic.
        (SHARED, found(collisions=({**LOST, "alone_slow": 2},)), False),
    ],
)  # fmt: skip
def test_what_is_named_and_how_many_answered_decide(one: Slowed, result: Any, good: bool) -> None:  # noqa: FBT001
    assert judged(one, result)[0] is good


def test_a_reason_on_a_page_is_short_and_without_the_place_in_a_librarys_source() -> None:
    assert shortened("gloo says [/src/pair.cc:553] closed by peer [10.0.0.2]:1") == (
        "gloo says closed by peer [10.0.0.2]:1"
    )
    assert len(shortened("word " * 100)) <= LONGEST
