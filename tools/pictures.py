"""Writes docs/statuspage: the status page of the demo node in Debian's Chromium, `make pictures`.

What is shown is what `wirewatch serve --replay demo-dgx-h200 --overlay NAME` serves after five minutes, but
for UNKNOWN, where all that asks the driver is overdue; the clock stands still, so that a picture changes only
with the page.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.node.page.states import state
from tests.system.browser import Size, Visit, at_another_place, chromium, served
from wirewatch.page.content import PageContent

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OUT = Path(__file__).parents[1] / "docs" / "statuspage"
DESK, PHONE = (1280, 1180), (390, 844)
COLOURS = 256
LIMIT = 250_000
"""Bytes of a picture."""
SHOWN: Mapping[str, tuple[str, str]] = {
    "ok": ("healthy", ""),
    "degraded": ("degraded", "overlay straggler-memory, "),
    "unknown": ("silent", "its driver silenced by hand, "),
    "failed": ("link-down", "overlay nvlink-link-down, "),
    "slow": ("straggler", "overlay straggler-source, "),
}
"""By name: the state, and what makes it so."""


@dataclass(frozen=True)
class Picture:
    """One file; `part` is what is shown of the page, all that is in sight where it is empty."""

    name: str
    of: str
    size: Size
    scheme: Literal["light", "dark"]
    part: str = ""


PICTURES = (
    Picture("ok-desk-light", "ok", DESK, "light"),
    Picture("ok-phone-dark", "ok", PHONE, "dark"),
    Picture("degraded-desk-dark", "degraded", DESK, "dark"),
    Picture("degraded-phone-light", "degraded", PHONE, "light"),
    Picture("unknown-desk-light", "unknown", DESK, "light"),
    Picture("unknown-phone-dark", "unknown", PHONE, "dark"),
    Picture("failed-desk-light", "failed", DESK, "light"),
    Picture("failed-desk-dark", "failed", DESK, "dark"),
    Picture("failed-phone-light", "failed", PHONE, "light"),
    Picture("topology-light", "failed", DESK, "light", "#topology"),
    Picture("topology-dark", "failed", DESK, "dark", "#topology"),
    Picture("matrix-light", "slow", DESK, "light", "#peers"),
    Picture("matrix-dark", "slow", DESK, "dark", "#peers"),
)


def shown(name: str) -> PageContent:
    """As the daemon says it of the demo."""
    of, how = SHOWN[name]
    return at_another_place(state(of), "", f"recording demo-dgx-h200, {how}part of it made up", "synthetic")


def take(browser: "Browser", address: str, one: Picture) -> bytes:
    with Visit(browser, size=one.size, scheme=one.scheme) as visit:
        visit.page.goto(f"{address}/{one.of}?refresh=15")
        data = visit.page.locator(one.part).screenshot() if one.part else visit.page.screenshot()
        assert visit.complaints == []
    return small(data)


def small(data: bytes) -> bytes:
    """The same with so few colours that it may lie in a repository."""
    from PIL import Image  # noqa: PLC0415 - `make check` has none

    made = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        made, "PNG", optimize=True
    )
    return made.getvalue()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    states: dict[str, Callable[[], PageContent]] = {name: lambda name=name: shown(name) for name in SHOWN}  # type: ignore[misc]
    with served(states) as address, chromium() as browser:
        for one in PICTURES:
            data = take(browser, address, one)
            assert len(data) < LIMIT, (one.name, len(data))
            (OUT / f"{one.name}.png").write_bytes(data)
            print(f"{one.name:<24}{len(data) / 1000:>7.0f} kB")
    for file in OUT.glob("*.png"):
        if file.stem not in {one.name for one in PICTURES}:
            file.unlink()


if __name__ == "__main__":
    main()
