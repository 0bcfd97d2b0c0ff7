"""The rules that the code can make, read from its source: what is given to a finding as its rule.

A rule with a part that is known only while it runs is found as a pattern such as `nvlink.*_errors`.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import wirewatch

MAKERS = frozenset({"Finding", "ProbeFinding", "Entry", "FabricFault"})
"""What takes a rule as its first argument."""
_RULE = re.compile(r"[a-z0-9_*]+\.[a-z0-9_*]+")


class UnknownRuleError(Exception):
    """Something is given as a rule that this reading does not understand."""


def sources() -> dict[str, str]:
    """The package's modules by their path."""
    root = Path(wirewatch.__file__).parent
    return {str(path.relative_to(root)): path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}


def patterns(modules: Mapping[str, str]) -> set[str]:
    """Rules and patterns of rules in these sources.

    Raises:
        UnknownRuleError: see there.
    """
    makers = (*MAKERS, "Rule")
    making = [name for name, text in modules.items() if any(f"{maker}(" in text for maker in makers)]
    parsed = cache(lambda name: ast.parse(modules[name]))
    return {rule for name in making for rule in _Module(name, modules, parsed).rules()}


class _Module:
    def __init__(self, name: str, modules: Mapping[str, str], parsed: Callable[[str], ast.Module]) -> None:
        self._name, self._modules, self._parsed = name, modules, parsed
        self._nodes = list(ast.walk(parsed(name)))

    def rules(self) -> Iterator[str]:
        yield from self._declared()
        for call in self._nodes:
            if isinstance(call, ast.Call) and _called(call.func) in MAKERS:
                given = [*call.args, *(k.value for k in call.keywords if k.arg == "rule")]
                if not given:
                    raise UnknownRuleError(f"{self._name}:{call.lineno}: no rule")
                yield from self._resolved(given[0])

    def _declared(self) -> Iterator[str]:
        """Declared rules that a function of the module uses: each makes its own finding."""
        functions = (node for node in self._nodes if isinstance(node, ast.FunctionDef))
        used = {
            ast.unparse(node) for one in functions for node in ast.walk(one) if isinstance(node, ast.Name)
        }
        for found in self._parsed(self._name).body:
            match found:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="Rule"), args=[ast.Constant(value=str(text)), *_]),
                ) if name in used:
                    yield text
                case _:
                    pass

    def _resolved(self, node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Attribute(attr="rule"):
                return  # That of another finding, which is found where it was made.
            case ast.Attribute(value=ast.Name(id="self"), attr="name"):
                return  # A declared rule makes its own finding.
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr():
                yield from self._formatted(node)
            case ast.Call(func=ast.Name(id=name)) if returned := list(self._returned(name)):
                yield from returned
            case ast.Name(id=name):
                constant = self._constant(name)
                yield from self._told() if constant is None else (constant,)
            case _:
                raise UnknownRuleError(f"{self._name}:{node.lineno}: {ast.unparse(node)}")

    def _formatted(self, text: ast.JoinedStr) -> Iterator[str]:
        """One rule for each value of a loop over a literal table, else a pattern."""
        made = [""]
        for part in text.values:
            if isinstance(part, ast.Constant):
                options = [str(part.value)]
            else:
                inner = part.value if isinstance(part, ast.FormattedValue) else part
                options = list(self._looped(inner)) or ["*"]
            made = [f"{head}{tail}" for head in made for tail in options]
        yield from made

    def _looped(self, value: ast.expr) -> Iterator[str]:
        for loop in self._nodes:
            if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple)):
                continue
            targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            names = [ast.unparse(target) for target in targets]
            if ast.unparse(value) in names:
                place = names.index(ast.unparse(value))
                for row in loop.iter.elts:
                    cells = row.elts if isinstance(row, ast.Tuple) else [row]
                    yield str(ast.literal_eval(cells[place]))

    def _nearest(self, word: str) -> Iterator[ast.Module]:
        """This module, then all others that have the word: it may stand for another rule there."""
        yield self._parsed(self._name)
        for name, text in self._modules.items():
            if name != self._name and word in text:
                yield self._parsed(name)

    def _returned(self, function: str) -> Iterator[str]:
        for tree in self._nearest(function):
            for found in tree.body:
                if isinstance(found, ast.FunctionDef) and found.name == function:
                    for inner in ast.walk(found):
                        if isinstance(inner, ast.Return) and inner.value is not None:
                            yield from self._resolved(inner.value)
                    return

    def _constant(self, name: str) -> str | None:
        for tree in self._nearest(name):
            for found in tree.body:
                match found:
                    case ast.Assign(targets=[ast.Name(id=target)], value=ast.Constant(value=str(text))):
                        if target == name and _RULE.fullmatch(text):
                            return text
                    case _:
                        pass
        return None

    def _told(self) -> Iterator[str]:
        """Everything in the module that has the form of a rule, for one that comes in a variable."""
        found = set()
        for node in self._nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found |= set(self._formatted(node))
        rules = sorted(text for text in found if _RULE.fullmatch(text))
        if not rules:
            raise UnknownRuleError(f"{self._name}: a rule that is made elsewhere")
        yield from rules


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
