"""Claims of the source documents: what each question answers, and that each named test exists."""

import re
from functools import cache

from tests.lab.goldens import made
from tests.rows import each
from tools.prose import ROOT
from tools.sources import DOCUMENTS, SourceClaim, book

BOOK = book()
ASKED = [one for one in BOOK.claim if one.ask]
TESTED = [one for one in BOOK.claim if one.test]


@cache
def answer(name: str) -> str:
    """What the command of a question prints, without its exit code."""
    whole = made.answer(BOOK.questions[name])
    return whole.partition("\n")[2].rpartition("\n[ends with ")[0]


@each("claim", ASKED, ids=[one.claim for one in ASKED])
def test_the_answer_to_each_claim_is_the_one_that_stands_there(claim: SourceClaim) -> None:
    assert not claim.wrong(answer(claim.ask))


@each("claim", TESTED, ids=[one.claim for one in TESTED])
def test_each_named_test_is_there(claim: SourceClaim) -> None:
    path, _, name = claim.test.partition("::")
    assert re.search(rf"^ *def {re.escape(name)}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_every_document_has_claims_and_every_question_is_asked() -> None:
    assert {one.document for one in BOOK.claim} == set(DOCUMENTS)
    assert {one.ask for one in ASKED} == set(BOOK.questions)
    assert len(BOOK.claim) >= 139
    assert len({(one.document, one.claim) for one in BOOK.claim}) == len(BOOK.claim)


def test_another_figure_or_text_is_wrong() -> None:
    said = {"document": "000", "claim": "A.", "holds": "yes", "ask": "a", "at": "b/c=1/d", "is": 2}
    figure = SourceClaim.model_validate(said)
    assert not figure.wrong('{"b": [{"c": 0, "d": 9}, {"c": 1, "d": 2.01}]}')
    assert figure.wrong('{"b": [{"c": 1, "d": 2.1}]}') == "2.1, not 2.0 within 0.01"
    text = SourceClaim(document="000", claim="A.", holds="no", ask="a", says="x y")
    assert (text.wrong("x\n  y"), text.wrong("y")) == ("", "y is without x y")
