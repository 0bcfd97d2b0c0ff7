"""Writes docs/screenshots: commands in a terminal of 80 columns, as SVG: `make terminals`, and look at them.

The commands run as written, on bundled recordings. The pictures name no font of another host.
"""

import asyncio
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from wirewatch.cli.check.polling import NodeSource, played
from wirewatch.cli.jobs.topapp import TopApp
from wirewatch.cli.jobs.topprocesses import HostProcess, HostProcesses
from wirewatch.documents.status import NodeSnapshot

OUT = Path(__file__).parents[1] / "docs" / "screenshots"
WIREWATCH = Path(sys.executable).with_name("wirewatch")
WIDTH = 80
"""Characters of a line of a terminal."""
TALL = 32
"""Lines of the terminal of `top`."""
FAULT = "nvlink-link-down"
READY = b"leaves nothing behind"
PATIENCE = 120.0
"""Seconds for a demo to come to its verdict on a busy machine."""
TOP_EVERY, TOP_SECONDS = 0.5, 2.0
"""Seconds between two looks of `top`, and until it has seen the last two polls of its recording."""
ASKING = (
    ("check", "check"),
    ("status", "status"),
    ("findings", "findings list"),
)
"""What is asked while the demo runs: the picture's name and the words."""
EXPLAIN = "explain --replay demo-dgx-h200 --overlay job-hang-stopped"
TOP = ("demo-dgx-h200", ("job-hang-stopped",))
"""The recording of `top`, and what changes it."""
PEOPLE = ("alice", "python3 train.py --config configs/dgx.yaml --resume")
"""User and command of its processes, drawn: a recording has none."""
_FONT = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
_OTHER_HOST = re.compile(r"(url\(|href=|src=)[\"']?https?:")
_FAMILY = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def main() -> None:
    """Write all pictures."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
        # So that the demo names its commands as everywhere, and not by where they lie here.
        env["PATH"] = f"{WIREWATCH.parent}:{env['PATH']}"
        env.pop("NO_COLOR", None)
        with demo(env) as said:
            save("demo", f"demo {FAULT}", said)
            for name, words in ASKING:
                save(name, words, typed(words, env))
        save("explain", EXPLAIN, typed(EXPLAIN, env))
    for name, keys in (("top", ()), ("top-help", ("h",)), ("top-filter", ("slash", *"gpu=3", "enter"))):
        write(name, asyncio.run(top(keys)))


@contextmanager
def demo(env: Mapping[str, str]) -> Iterator[str]:
    """A demo that has come to its verdict, and what it has said until then."""
    process, end = started(f"demo {FAULT}", env)
    try:
        said = heard(end, until=READY)
        if READY.decode() not in said:
            raise SystemExit(said)
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        os.close(end)


def typed(words: str, env: Mapping[str, str]) -> str:
    """What a command says in a terminal."""
    process, end = started(words, env)
    said = heard(end)
    process.wait()
    os.close(end)
    return said


def started(words: str, env: Mapping[str, str]) -> tuple["subprocess.Popen[bytes]", int]:
    """A command in a terminal of its own, and the terminal's other end."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [WIREWATCH, *words.split()], stdout=theirs, stderr=theirs, stdin=theirs, env=env
    )
    os.close(theirs)
    return process, mine


def heard(end: int, until: bytes = b"") -> str:
    """What comes out of a terminal until this text has come, or to its end."""
    said, stop = b"", time.monotonic() + PATIENCE
    while not (until and until in said):
        try:
            data = os.read(end, 1 << 16)
        except OSError:  # the command has ended
            break
        if not data:
            break
        said += data
        if time.monotonic() > stop:
            raise TimeoutError(said.decode())
    return said.decode()


def drawn_people(_: HostProcesses, snapshot: NodeSnapshot) -> HostProcesses:
    """The processes of a recording, as a machine that runs them would show them."""
    gpus = [gpu for job in snapshot.jobs.jobs for gpu in job.evidence.gpus]
    return HostProcesses({
        pid: HostProcess(*PEOPLE, 0.0 if gpu.utilisation == 0 else 1.02, 1, 0.0, 0.0)
        for gpu in gpus
        for pid in gpu.pids
    })  # fmt: skip


async def top(keys: Sequence[str]) -> str:
    """`top` in its own terminal at the end of its recording, after these keys."""
    shots: list[NodeSnapshot] = []
    played(NodeSource(None, *TOP), lambda poll: shots.append(poll.snapshot()))
    app = TopApp(lambda: shots[-1], shots[-2], TOP_EVERY, drawn_people)
    async with app.run_test(size=(WIDTH, TALL)) as pilot:
        await pilot.pause(TOP_SECONDS)
        await pilot.press(*keys)
        await pilot.pause()
        return app.export_screenshot(title="wirewatch top")


def save(name: str, words: str, said: str) -> None:
    """Write the picture of a command and what it said."""
    text = Text.from_ansi(said.replace("\r\n", "\n").rstrip())
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.assemble(("$ ", "green"), (f"wirewatch {words}", "bold")))
    console.print(text)
    write(name, console.export_svg(title=f"wirewatch {words.split(maxsplit=1)[0]}", unique_id=name))


def write(name: str, svg: str) -> None:
    """Write a picture without the fonts of another host."""
    text = _FONT.sub("", svg).replace("Fira Code, monospace", _FAMILY).replace("Fira Code", _FAMILY)
    text = "\n".join(line.rstrip() for line in text.splitlines())
    if _OTHER_HOST.search(text):
        raise SystemExit(f"{name}: the picture names another host")
    (OUT / f"{name}.svg").write_text(f"{text}\n", "utf-8")
    print(OUT / f"{name}.svg", len(text))


if __name__ == "__main__":
    main()
