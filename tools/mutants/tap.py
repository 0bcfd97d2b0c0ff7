"""Mutants of the tap's C, from its syntax tree."""

from collections.abc import Iterator

import tree_sitter_c
from tree_sitter import Language, Node, Parser

from tools.mutants.site import Site

_MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_SYNCS = ("atomic", "fence", "lock", "barrier", "fsync", "msync")
_ENDS = ("return_statement", "break_statement", "continue_statement", "goto_statement")


def sites(path: str, source: bytes) -> Iterator[Site]:
    """Yield each mutant of one C file; headers have none that a test could tell apart."""
    for node, where in _nodes(Parser(Language(tree_sitter_c.language())).parse(source).root_node, ""):
        for kind, place, put in _here(node, source):
            line, last = place.start_point.row + 1, place.end_point.row + 1
            before = source[place.start_byte : place.end_byte].decode()
            yield Site(path, line, last, where, kind, place.start_byte, place.end_byte, before, put)


def _nodes(node: Node, where: str) -> Iterator[tuple[Node, str]]:
    if node.type == "function_definition":
        named = node.child_by_field_name("declarator")
        while named is not None and named.type != "identifier":
            named = named.child_by_field_name("declarator")
        where = named.text.decode() if named is not None and named.text else where
    yield node, where
    for child in node.children:
        if not child.type.startswith("preproc"):
            yield from _nodes(child, where)


def _here(node: Node, source: bytes) -> Iterator[tuple[str, Node, str]]:
    def text(part: Node) -> str:
        return source[part.start_byte : part.end_byte].decode()

    if node.type == "binary_expression":
        left, operator, right = node.children
        if text(operator) in {"&&", "||"}:
            yield from (("conjunct", node, f"({text(side)})") for side in (left, right))
        elif text(operator) in _MOVED:
            kind = "invert" if text(operator) in {"==", "!="} else "limit"
            yield kind, operator, _MOVED[text(operator)]
    elif node.type == "if_statement":
        yield from _branches(node)
    elif node.type == "conditional_expression":
        yield "else", node, f"({text(node.children[2])})"
    elif node.type == "expression_statement" and node.children[0].type == "call_expression":
        name = text(node.children[0].children[0]).lower()
        yield "sync" if any(word in name for word in _SYNCS) else "statement", node, ";"


def _branches(node: Node) -> Iterator[tuple[str, Node, str]]:
    """Yield the guard that lets all pass, and the `else` that is not there."""
    body, test = node.child_by_field_name("consequence"), node.child_by_field_name("condition")
    other = node.child_by_field_name("alternative")
    if body is not None and test is not None and _ends(body):
        yield "guard", test, "(0)"
    if other is not None and other.children[-1].type != "if_statement":
        yield "else", other, ""


def _ends(body: Node) -> bool:
    last = body if body.type != "compound_statement" else next(reversed(body.named_children), body)
    return last.type in _ENDS
