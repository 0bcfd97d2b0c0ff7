"""proof/fleet/notifications/notifications.md: how many messages each scene made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.fleet.notifications.scenes import NODES, OVER, Scene
from proof.rehearsal.page import spoken, table
from proof.rehearsal.receiver import Notification
from tools.prose import formatted

PAGE, TEXT = (Path(__file__).with_name(name) for name in ("notifications.md", "page.in.md"))
HEAD = ("what happens", "alerts that fire", "pages", "tickets", "after", "the first page says")


@dataclass(frozen=True, slots=True)
class Counted:
    """Messages of one scene in which something fires; `after` in seconds, None without a page."""

    scene: Scene
    fired: int
    pages: int
    tickets: int
    after: float | None
    says: str

    def troubles(self) -> Iterator[str]:
        for name, came, may in (
            ("pages", self.pages, self.scene.pages), ("tickets", self.tickets, self.scene.tickets),
        ):  # fmt: skip
            if came != may:
                yield f"{self.scene.cluster}: {came} {name}, not {may}"


def counted(
    scene: Scene, fired: int, calls: Sequence[Notification], start: float
) -> Counted:  # fmt: skip
    """What came for this cluster in which something fires that is new; `start` in Unix seconds."""
    mine = [one for one in _news(calls) if one.group.get("cluster") == scene.cluster]
    pages = [one for one in mine if one.receiver == "page"]
    first = pages[0] if pages else None
    says = "; ".join(dict.fromkeys(one.annotations["summary"] for one in first.firing)) if first else ""
    return Counted(
        scene, fired, len(pages), sum(one.receiver == "ticket" for one in mine),
        None if first is None else first.at - start, says,
    )  # fmt: skip


def _news(calls: Sequence[Notification]) -> Iterator[Notification]:
    """Messages without those that say only what is over."""
    before: dict[object, set[object]] = {}
    for one in calls:
        group = (one.receiver, *sorted(one.group.items()))
        fires: set[object] = {tuple(sorted(notice.labels.items())) for notice in one.firing}
        if fires - before.get(group, set()):
            yield one
        before[group] = fires


def page(results: Sequence[Counted], seconds: float) -> str:
    lines = (
        (
            one.scene.about, str(one.fired), f"**{one.pages}**", str(one.tickets),
            "" if one.after is None else f"{one.after:.0f} s", one.says,
        )
        for one in results
    )  # fmt: skip
    text = TEXT.read_text("utf-8").format(
        table=table(HEAD, lines), seconds=f"{seconds:.0f}", nodes=NODES, over=spoken(OVER)
    )
    return formatted(text)
