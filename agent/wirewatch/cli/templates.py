"""Texts of commands from templates: each template looks like the printed text."""

from functools import cache
from typing import TYPE_CHECKING, Any

from wirewatch.core import words

if TYPE_CHECKING:
    from jinja2 import Environment


def render(package: str, template: str, **values: Any) -> str:
    """Return the text of a template of a package, such as `wirewatch.cli` and `probe.j2`.

    Templates call the functions of `core.words`. A missing value is an error, never an empty text.
    """
    return _environment(package).get_template(template).render(**values)


@cache
def _environment(package: str) -> "Environment":
    # Jinja takes longer to import than `check` takes.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package), autoescape=False, undefined=StrictUndefined, trim_blocks=True,  # noqa: S701
        lstrip_blocks=True, keep_trailing_newline=False,
    )  # fmt: skip
    made.globals["words"] = words
    return made
