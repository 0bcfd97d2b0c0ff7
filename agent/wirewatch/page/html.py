"""The page as HTML, with its HTTP headers; the template engine escapes every text.

The page is one file with its style and without scripts; the Content-Security-Policy allows nothing else.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from wirewatch.documents.health import Health
from wirewatch.page.model import Choice, Page

CHOICES: Mapping[str, str] = {"5": "5 s", "15": "15 s", "60": "1 min", "off": "paused"}
"""How often the page reloads itself, by the `refresh` of the URL."""
DEFAULT = "15"
"""The poll interval of the collectors of GPUs, links and ports."""
ICONS: Mapping[Health, tuple[str, str]] = {
    "ok": ("M12 1.5a10.5 10.5 0 1 0 0 21a10.5 10.5 0 0 0 0-21z", "M6.8 12.4l3.5 3.6 6.9-7.6"),
    "degraded": ("M12 2L23 21.5H1z", "M12 9v6.2M12 18.2v.3"),
    "unknown": (
        "M12 1.2L22.8 12 12 22.8 1.2 12z",
        "M9 9.6a3 3 0 1 1 4.4 2.7c-1 .6-1.4 1.1-1.4 2.2M12 17.2v.3",
    ),
    "failed": ("M7.6 1.5h8.8l6.1 6.1v8.8l-6.1 6.1H7.6l-6.1-6.1V7.6z", "M8 8l8 8M16 8l-8 8"),
}
"""A shape for each health, and the sign in it: they differ without colour, too."""
COLOURS: Mapping[Health, str] = {
    "ok": "#1a6e3c", "degraded": "#e0a100", "unknown": "#5b4fa2", "failed": "#b3261e",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """The text of the page, and its headers."""

    text: bytes
    headers: Mapping[str, str]


def choice(refresh: str) -> str:
    """The `refresh` of the URL; the default for any unknown one."""
    return refresh if refresh in CHOICES else DEFAULT


def render(page: Page, refresh: str) -> RenderedPage:
    """The page as HTML; `refresh` as in `choice`."""
    chosen = choice(refresh)
    choices = [Choice(text, f"?refresh={key}", key == chosen) for key, text in CHOICES.items()]
    icon = _favicon(page.verdict.health)
    text = _template().render(page=page, choices=choices, icons=ICONS, favicon=icon)
    return RenderedPage(text.encode(errors="replace"), _headers(chosen))


def ticked(text: str) -> Markup:
    """A text, escaped, with the parts between two backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def _headers(chosen: str) -> Mapping[str, str]:
    headers = {
        "content-type": "text/html; charset=utf-8", "cache-control": "no-store",
        "content-security-policy": _policy(), "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }  # fmt: skip
    # A header and not a tag of the page: a page that was saved for a ticket stays as it was.
    return headers if chosen == "off" else {**headers, "refresh": chosen}


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("wirewatch.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters["ticked"] = ticked
    return made


@cache
def _template() -> Template:
    return _environment().get_template("page.html")


@cache
def _style() -> str:
    return _environment().get_template("page.css").render()


@cache
def _policy() -> str:
    """The Content-Security-Policy: only this style, by its hash, and the icon in the page."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _favicon(health: Health) -> str:
    shape, sign = ICONS[health]
    ink = "#1c1500" if health == "degraded" else "#fff"
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
        f'<path d="{shape}" fill="{COLOURS[health]}"/>'
        f'<path d="{sign}" fill="none" stroke="{ink}" stroke-width="2.4"/></svg>'
    )
    return f"data:image/svg+xml,{quote(drawn)}"
