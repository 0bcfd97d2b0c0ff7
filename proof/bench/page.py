"""What the status page costs: `python -m proof.bench.page`. Milliseconds, median and spread.

Made from the published state of the demo node of 8 GPUs and 10 ports, documents included, nothing kept from
one page to the next; then over HTTP from a daemon, and what `/livez` and `/metrics` take while somebody else
asks for a page that must be made, again and again.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.node.collectors.test_overlays import DEMO
from tests.node.daemon.process import Daemon
from tests.node.page.states import faulty
from wirewatch.documents.judged import DaemonStatus
from wirewatch.page.content import PageContext, page_content
from wirewatch.page.html import page, render
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged, judge_state

ROUNDS, WARM_UP = 200, 10
ASKED = 150
"""Requests for each figure over HTTP."""
PAUSE = 0.01
ABOUT = "synthetic", VerdictPolicy(), PageContext()
NAMES = {"": "healthy", "nvlink-link-down": "a link is down", "gpu-lost": "a GPU is lost"}


def shown(name: str, times: Sequence[float]) -> None:
    ranked = sorted(ms * 1e3 for ms in times)
    p95 = ranked[round(len(ranked) * 0.95) - 1]
    told_of = (statistics.median(ranked), p95, ranked[0], ranked[-1])
    print(f"{name:<48}{len(ranked):>5}" + "".join(f"{ms:>9.1f}" for ms in told_of), flush=True)


def timed(
    work: Callable[[], object], count: int, pause: float = 0.0, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    times = []
    for _ in range(count):
        began = clock()
        work()
        times.append(clock() - began)
        time.sleep(pause)
    return times


def made() -> None:
    """In this process, uncached."""
    for overlay, name in NAMES.items():
        node = faulty(overlay)
        here, said = judge_state(node.state), DaemonStatus(node.clock.now(), node.clock.mono())
        work = lambda here=here, said=said: render(page(page_content(here, said, *ABOUT)), "off")  # noqa: E731
        shown(f"page, {name}", timed(work, ROUNDS)[WARM_UP:])
        # Of this thread alone, whatever else the machine does.
        shown("  of processor time", timed(work, ROUNDS, clock=time.thread_time)[WARM_UP:])
        if not overlay:
            parts(here, said)


def parts(here: Judged, said: DaemonStatus) -> None:
    documents = partial(page_content, here, said, *ABOUT)
    values = partial(page, documents())
    html = partial(render, values(), "off")
    for name, work in (("documents of the JSON interface", documents), ("values", values), ("HTML", html)):
        shown(f"  of it the {name}", timed(work, ROUNDS)[WARM_UP:])


def served(stack: ExitStack) -> None:
    """Over HTTP; each request asks for another second or another way to refresh, so that a page is made."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    daemon = stack.enter_context(Daemon(["--replay", DEMO, "--loop"], folder, '[listen]\nsocket = ""\n'))
    daemon.ready()
    quiet = {path: timed(partial(daemon.get, path), ASKED, PAUSE) for path in ("/livez", "/metrics")}
    done = threading.Event()

    def visitor() -> None:
        turn = 0
        while not done.is_set():
            daemon.get(f"/?refresh={('5', 'off')[turn % 2]}")
            turn += 1

    for path, times in quiet.items():
        shown(f"{path}, nobody else asks", times)
    thread = threading.Thread(target=visitor)
    thread.start()
    busy = {path: timed(partial(daemon.get, path), ASKED, PAUSE) for path in quiet}
    done.set()
    thread.join()
    for path, times in busy.items():
        shown(f"{path}, while pages are made without a break", times)
    choices = [f"/?refresh={('5', 'off')[turn % 2]}" for turn in range(ASKED)]
    shown("/, over HTTP", timed(lambda: daemon.get(choices.pop()), ASKED))


def main() -> None:
    print(f"{'status page, 8 GPUs, 10 ports, ms':<48}{'runs':>5}{'median':>9}{'p95':>9}{'min':>9}{'max':>9}")
    made()
    with ExitStack() as stack:
        served(stack)


if __name__ == "__main__":
    main()
