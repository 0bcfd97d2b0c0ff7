"""Values that hypothesis draws for the tests of the core and of the hardware ports."""

from hypothesis import strategies as st

from wirewatch.core.ports import ALL_LINKS, Question
from wirewatch.core.types import Absent, Json, Why

_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
JSON: st.SearchStrategy[Json] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
ABSENT = st.builds(Absent, st.sampled_from(Why), st.text(max_size=20), st.none() | st.integers(0, 999))

_WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,11}", fullmatch=True)
_ARGUMENTS = st.one_of(st.integers(), st.just(ALL_LINKS), _WORDS.filter(lambda word: word != "all"))
QUESTIONS = st.builds(Question, _WORDS, st.lists(_ARGUMENTS, max_size=4).map(tuple))
