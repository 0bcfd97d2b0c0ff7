"""Mutants of Python, from its syntax tree.

A guard is gone or moved. A conjunct or an `else` is dropped, a return past a guard, `min` stands for `max`, a
limit or a comparison is moved, an answer is always the same, a statement or a lock is left out.
"""

import ast
from collections.abc import Iterator
from itertools import accumulate

from tools.mutants.site import Site

_Change = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt, str]
"""Its kind, the first and the last node that go, and the text in their place."""
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_MOVED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_INVERTED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_SPOKEN = ("log", "logger", "logging", "warnings", "click", "print")
"""Statements that only speak; a test of them would repeat their text."""


def sites(path: str, source: bytes) -> Iterator[Site]:
    """Yield each mutant of one module.

    Raises:
        SyntaxError: The source is no Python.
    """
    yield from _Module(path, source).walk(ast.parse(source), "")


class _Module:
    """The text of a module, in which positions of the syntax tree are found."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]

    def walk(self, node: ast.AST, where: str) -> Iterator[Site]:
        """Yield the mutants at this node and below; `where` is the dotted name of what is around."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and _is_not_run(node.test)):
            return
        for kind, first, last, put in self._here(node, where):
            yield self._site(where, kind, self._at(first), self._end(last), put)
        for child in ast.iter_child_nodes(node):
            yield from self.walk(child, where)

    def _here(self, node: ast.AST, where: str) -> Iterator[_Change]:
        match node:
            case ast.BoolOp():
                yield from (("conjunct", node, node, put) for put in self._without_each(node))
            case ast.IfExp():
                yield "else", node, node, f"({self._text(node.body)})"
            case ast.Compare(ops=[op]):
                yield from self._compared(node, op)
            case ast.UnaryOp(op=ast.Not()):
                yield "invert", node, node, f"bool({self._text(node.operand)})"
            case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED_CALLS:
                yield "swap", node.func, node.func, _SWAPPED_CALLS[name]
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if name.isupper() and value is not None and "." not in where and _is_limit(value):
                    yield "limit", value, value, f"2 * ({self._text(value)})"
            case ast.stmt():
                yield from _statements(node)

    def _compared(self, node: ast.Compare, op: ast.cmpop) -> Iterator[_Change]:
        left, right = node.left, node.comparators[0]
        if type(op) in _INVERTED:
            yield "invert", node, node, f"({self._text(left)} {_INVERTED[type(op)]} {self._text(right)})"
        elif _is_whole(left) or _is_whole(right):
            yield "limit", node, node, f"({self._text(left)} {_MOVED[type(op)]} {self._text(right)})"
        elif _is_number(right):
            yield "limit", right, right, f"({self._text(right)} * 1.5 + 0.1)"

    def _without_each(self, node: ast.BoolOp) -> Iterator[str]:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for left_out in node.values:
            kept = [f"({self._text(value)})" for value in node.values if value is not left_out]
            yield f"({word.join(kept)})"

    def _text(self, node: ast.expr) -> str:
        return self._source[self._at(node) : self._end(node)].decode()

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def _site(self, where: str, kind: str, start: int, end: int, put: str) -> Site:
        line, last = (self._source.count(b"\n", 0, place) + 1 for place in (start, end))
        return Site(self._path, line, last, where, kind, start, end, self._source[start:end].decode(), put)


def _statements(node: ast.stmt) -> Iterator[_Change]:
    """Yield the changes of a whole statement."""
    match node:
        case ast.If():
            yield from _branches(node)
        case ast.FunctionDef(returns=ast.Name(id="bool")) | ast.AsyncFunctionDef(returns=ast.Name(id="bool")):
            yield from _always(node)
        case ast.With(items=items) if "lock" in "".join(map(ast.unparse, items)).lower():
            yield "sync", node, items[-1].optional_vars or items[-1].context_expr, "if True"
        case ast.Expr(value=ast.Call() | ast.Await()) if not _speaks(node.value):
            yield "statement", node, node, "pass"
        case ast.AugAssign():
            yield "statement", node, node, "pass"


def _branches(node: ast.If) -> Iterator[_Change]:
    """Yield the guard that lets all pass, and the `else` that is not there."""
    if isinstance(node.body[-1], _ENDS):
        yield "guard", node.test, node.test, "False"
    if node.orelse and not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
        yield "else", node.orelse[0], node.orelse[-1], "pass"


def _always(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    """Yield answers that do not depend on the question; nested functions answer for themselves."""
    for step in node.body:
        for inner in ast.walk(step):
            if (
                isinstance(inner, ast.Return)
                and inner.value is not None
                and not isinstance(inner.value, ast.Constant)
            ):
                yield from (("always", inner, inner, f"return {answer}") for answer in (True, False))


def _is_whole(node: ast.expr) -> bool:
    """Tell whether a value is counted, so that a limit can be off by one; zero of a float is counted too."""
    counted = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    return counted or (isinstance(node, ast.Constant) and type(node.value) is int)


def _is_number(node: ast.expr) -> bool:
    """Tell whether an expression is made of numbers alone, as `5 * 60.0` is."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    parts = list(ast.walk(node))
    numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, allowed) for part in parts) and all(
        type(value) in {int, float} for value in numbers
    )


def _is_limit(node: ast.expr) -> bool:
    """Tell whether a number can be doubled: twice nothing is nothing."""
    return _is_number(node) and ast.unparse(node) != "0"


def _is_not_run(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "__name__ == '__main__'"}


def _speaks(call: ast.expr) -> bool:
    """Tell whether a statement logs, prints or adds a line of text to others."""
    name = ast.unparse(call.func if isinstance(call, ast.Call) else call)
    adds = (
        name.endswith(".append")
        and isinstance(call, ast.Call)
        and ast.unparse(call.args[0]).startswith(("f'", 'f"', "'", '"'))
    )
    return adds or name.lower().lstrip("_").startswith(_SPOKEN)
