"""The runbook as each agent serves it: a page for each alert, and what every finding means.

The text is that of docs/runbook.md and docs/runbooks, made into HTML by `make generated`; paths are theirs,
so that links between the pages hold, and that a link of an alert is an address and the path of the file.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from wirewatch import __version__
from wirewatch.page.html import RenderedPage, environment

FILE = "runbook.json"
"""By the path of a page below docs, its title and its HTML."""
INDEX = "runbooks/README.md"
OWN = "docs/runbook.md"
"""Where the status page finds it, also behind a proxy."""


@cache
def _pages() -> Mapping[str, tuple[str, str]]:
    made: dict[str, tuple[str, str]] = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return made


def runbook(path: str) -> RenderedPage | None:
    """A page by the path of its file below docs, such as `runbooks/WirewatchGPULost.md`; None for none."""
    return _rendered(path) if path in _pages() else None


@cache
def _rendered(path: str) -> RenderedPage:
    title, body = _pages()[path]
    style = files(__package__).joinpath("templates", "runbook.css").read_text("utf-8")
    # Relative, so that they hold where an agent is reached below a path.
    docs = "../" * path.count("/")
    index = "" if path == INDEX else f"{docs}{INDEX}"
    text = (
        environment()
        .get_template("runbook.html")
        .render(title=title, body=body, status=f"{docs}../", index=index, style=style, version=__version__)
    )
    return RenderedPage(text.encode(), _headers(style))


def _headers(style: str) -> Mapping[str, str]:
    sign = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return {
        "content-type": "text/html; charset=utf-8", "cache-control": "max-age=300",
        "content-security-policy": (
            f"default-src 'none'; style-src 'sha256-{sign}'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    }  # fmt: skip
