"""NCCL_ALGO and NCCL_PROTO: which algorithms or protocols a list leaves to each collective, or why it fails.

Source: NCCL's src/graph/tuning.cc (parseList, ncclTopoTuneModel) and src/enqueue.cc, 2.23 to 2.30.
"""

from collections.abc import Mapping, Sequence

from wirewatch.nccl.variables import Version

ALGO, PROTO = "NCCL_ALGO", "NCCL_PROTO"
RING, TREE, NVLS, LL, SIMPLE = "Ring", "Tree", "NVLS", "LL", "Simple"
ALGORITHMS = (TREE, RING, "CollNetDirect", "CollNetChain", NVLS, "NVLSTree", "PAT")
PROTOCOLS = (LL, "LL128", SIMPLE)
CHOICES: Mapping[str, Sequence[str]] = {ALGO: ALGORITHMS, PROTO: PROTOCOLS}
ALL_REDUCE, BROADCAST = "AllReduce", "Broadcast"
FUNCTIONS = (BROADCAST, "Reduce", "AllGather", "ReduceScatter", ALL_REDUCE)
"""Collectives as lists name them."""
STRICT: Version = (2, 24)
"""From here on an unknown word fails, and so does a collective that is left without an algorithm."""
_HAVE: Mapping[str, frozenset[str]] = {
    BROADCAST: frozenset({RING}),
    "Reduce": frozenset({RING}),
    "AllGather": frozenset({RING, "CollNetDirect", NVLS, "PAT"}),
    "ReduceScatter": frozenset({RING, "CollNetDirect", NVLS, "PAT"}),
    ALL_REDUCE: frozenset(ALGORITHMS) - {"PAT"},
}
"""The algorithms that a collective has at all."""
Allowed = Mapping[str, frozenset[str]]
"""The choices left to each collective, by its name in a list."""


class ListError(ValueError):
    """NCCL 2.24 or newer refuses the list, and the communicator is not made."""


def allowed(name: str, value: str) -> Allowed:
    """Return what NCCL 2.24 and newer leave each collective; ListError for a word that is none of theirs.

    `ring,tree;allgather:^nvls`: lists for single collectives follow one for all; `^` names what is left out.
    """
    choices = CHOICES[name]
    left = dict.fromkeys(FUNCTIONS, frozenset(choices))
    for place, entry in enumerate(part for part in value.split(";") if part):
        words = [word for word in entry.split(":") if word]
        if not words:
            raise ListError(f"{entry!r} is not a list")
        collective, listed = (words[0], words[1]) if len(words) > 1 else ("", words[0])
        if not collective and (place or value.startswith(";")):
            raise ListError(f"{entry!r} names no collective, and only the first list may do so")
        chosen = _choose(listed, choices)
        for function in _functions(collective):
            left[function] = chosen
    return left


def ignored(name: str, value: str) -> tuple[str, ...]:
    """The words of a value that NCCL before 2.24 passes over: it knows no lists for single collectives."""
    known = {one.lower() for one in CHOICES[name]}
    words = value.removeprefix("^").split(",")
    return tuple(word for word in words if word and word.lower() not in known)


def left_without(name: str, value: str) -> tuple[str, ...]:
    """Return collectives for which a list leaves no choice; from 2.24 on calling them fails."""
    found = allowed(name, value)
    if name == ALGO:
        return tuple(function for function in FUNCTIONS if not found[function] & _HAVE[function])
    return tuple(function for function in FUNCTIONS if not found[function])


def lacks(name: str, value: str, *needed: str) -> bool:
    """Tell whether a list, or NCCL's refusal of it, keeps a `needed` word from a collective that has it."""
    try:
        found = allowed(name, value)
    except ListError:
        return True
    return any(
        word not in found[function]
        for function in FUNCTIONS
        for word in needed
        if name == PROTO or word in _HAVE[function]
    )


def _choose(listed: str, choices: Sequence[str]) -> frozenset[str]:
    names = {one.lower(): one for one in choices}
    words = [word for word in listed.removeprefix("^").split(",") if word]
    unknown = [word for word in words if word.lower() not in names]
    if unknown:
        raise ListError(f"{unknown[0]!r} is not one of {', '.join(choices)}")
    found = frozenset(names[word.lower()] for word in words)
    return frozenset(choices) - found if listed.startswith("^") else found


def _functions(collective: str) -> Sequence[str]:
    if not collective:
        return FUNCTIONS
    found = [one for one in FUNCTIONS if one.lower() == collective.lower()]
    if not found:
        raise ListError(f"{collective!r} is not one of {', '.join(FUNCTIONS)}")
    return found
