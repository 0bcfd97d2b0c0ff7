"""What the rounds of pairs on real schedulers must say of slowed wires: no answers are no proof."""

from typing import Any

import pytest

from proof.pairs.faults import Slowed, judged

N3 = {"kind": "node", "name": "n3", "peer": "", "losses": [{"way": "sends", "loss": 0.5}]}
HEALTHY = Slowed("nothing", lambda _: None, frozenset())
SENDS = Slowed("n3 sends slowly", lambda _: None, frozenset({("n3", "sends")}))


def found(*named: dict[str, Any], answered: int = 12) -> dict[str, Any]:
    return {"named": [*named], "answered": answered, "runs": 12, "rounds": 3}


@pytest.mark.parametrize(
    ("one", "result", "good"),
    [
        (HEALTHY, found(), True), (HEALTHY, found(answered=11), True), (HEALTHY, found(answered=0), False),
        (HEALTHY, found(N3), False), (SENDS, found(N3), True), (SENDS, found(), False),
        (SENDS, found(N3, answered=6), False),
    ],
)  # fmt: skip
def test_what_is_named_and_how_many_answered_decide(one: Slowed, result: Any, good: bool) -> None:  # noqa: FBT001
    assert judged(one, result)[0] is good
