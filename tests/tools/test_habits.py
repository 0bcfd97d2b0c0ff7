"""Licence, type information, hooks and line lengths are the same everywhere they are stated."""

import ast
import re
import tomllib
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import yaml
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""


def test_the_licence_is_apaches_unchanged() -> None:
    assert sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert 'image.licenses="Apache-2.0"' in (ROOT / "Dockerfile").read_text("utf-8")
    chart = yaml.safe_load((ROOT / "helm/wirewatch/Chart.yaml").read_text("utf-8"))
    assert chart["annotations"]["artifacthub.io/license"] == "Apache-2.0"


def test_the_wheel_has_the_licence_and_says_that_it_is_typed(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as file:
        names = set(file.namelist())
        about = next(name for name in names if name.endswith("/METADATA"))
        assert "License-Expression: Apache-2.0" in file.read(about).decode()
    assert "wirewatch/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_hooks_before_a_commit_are_those_of_make_check() -> None:
    recipe = re.search(r"^check: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe
    check = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [hook["entry"] for one in settings["repos"] for hook in one["hooks"]] == check
    assert all(hook["language"] == "system" for one in settings["repos"] for hook in one["hooks"])


def test_editors_wrap_where_the_formatters_do() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
    prose = tomllib.loads((ROOT / ".mdformat.toml").read_text("utf-8"))
    editor = (ROOT / ".editorconfig").read_text("utf-8")
    assert re.findall(r"max_line_length = (\d+)", editor) == [str(ruff["line-length"]), str(prose["wrap"])]


def test_each_decision_has_a_number_and_a_topic_and_stands_in_the_index() -> None:
    """The title is the number and the topic, and the file's name is the same in small letters."""
    folder = ROOT / "docs" / "adr"
    titles = {
        path.name: path.read_text("utf-8").partition("\n")[0] for path in sorted(folder.glob("[0-9]*.md"))
    }
    assert len({name[:4] for name in titles}) == len(titles)
    index = (folder / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\((.+?)\) \| (.+?) \| .+ \|$", index, re.MULTILINE)
    assert {name: f"# {number}. {topic}" for number, name, topic in rows} == titles
    assert [name for _, name, _ in rows] == sorted(titles)
    slugs = {
        name: re.sub(r"[^\w ]", "", title).strip().lower().replace(" ", "-") for name, title in titles.items()
    }
    assert [name for name, slug in slugs.items() if name != f"{slug}.md"] == []


def test_a_property_has_its_share_of_examples() -> None:
    """A number alone is the same for a change and before a release (tests/examples.py)."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [str(path) for path, text in texts.items() if re.search(r"max_examples=\d", text)] == []


def test_what_make_test_runs_imports_no_package_that_dev_leaves_out() -> None:
    """CI installs every extra, so that only a fresh clone would show it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {extra: {re.split(r"[^\w-]", one)[0] for one in wanted} for extra, wanted in extras.items()}
    left_out = {one.replace("-", "_") for one in set().union(*names.values()) - names["dev"]}
    found = {
        (path.relative_to(ROOT).as_posix(), module)
        for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "system"
        for module in _imported(path, left_out) & left_out
    }  # fmt: skip
    assert found == set()


def _imported(path: Path, wanted: set[str]) -> set[str]:
    """The packages that a module imports when it is imported; none where its text has no wanted name."""
    text = path.read_text("utf-8")
    body = ast.parse(text).body if any(name in text for name in wanted) else []
    plain = {one.name for node in body if isinstance(node, ast.Import) for one in node.names}
    return {name.partition(".")[0] for name in plain | {
        str(node.module) for node in body if isinstance(node, ast.ImportFrom)
    }}  # fmt: skip


def test_broad_handlers_stand_only_where_the_guide_names_them() -> None:
    """What raises the error again has swallowed nothing."""
    agent, found = ROOT / "agent", set()
    for path in agent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                found.add(path.relative_to(agent).as_posix().removeprefix("wirewatch/"))
    rule = re.search(
        r"^- A broad `except`(?:.+\n)+?(?=- )", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    assert rule
    assert found == set(re.findall(r"`([\w/]+\.py)`", rule[0]))


def _is_broad(handler: ast.ExceptHandler) -> bool:
    names = {"Exception", "BaseException"}
    broad = handler.type is None or any(
        ast.unparse(one) in names for one in ast.walk(handler.type) if isinstance(one, ast.Name)
    )
    return broad and not (isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None)
