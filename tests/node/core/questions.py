"""Reads the text of a question, which the agent only writes."""

import re

from wirewatch.core.ports import ALL_LINKS, Arg, Question

_QUESTION = re.compile(r"(\w+)\((.*)\)")


def parse_question(text: str) -> Question:
    """Return the question that has this text; ValueError for any other."""
    match = _QUESTION.fullmatch(text)
    if not match:
        raise ValueError(f"not a question: {text!r}")
    return Question(match[1], tuple(map(_arg, match[2].split(",") if match[2] else [])))


def _arg(text: str) -> Arg:
    if text == "all":
        return ALL_LINKS
    return int(text) if re.fullmatch(r"-?\d+", text) else text
