"""A stranger's collector: one file in a copy of the tree, one command, and style, types, tests are green."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node.collectors.test_contributing import GUIDE, example

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
POWER = '''"""NVLink power: how many links of each GPU sleep."""

from collections.abc import Iterable

from wirewatch.core.collector import (
    Collector,
    GpuReading,
    Memories,
    NoPolicy,
    Options,
    fold_gpus,
    forget_gone,
    read_gpus,
)
from wirewatch.core.nvml import Asked, Supported, ask_gpu
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.types import Absent, Expect, Finding, Kind, Metric, Ok, Panel, Sample

ASLEEP = Metric(
    "nvlink_low_power_links", Kind.GAUGE, ("gpu", "uuid"), "Links of the GPU in their low power state.",
    panel=Panel("NVLink: links asleep"),
)  # fmt: skip
# The links that all bundled recordings were asked for.
QUESTIONS = tuple(Question("Field", (167, link)) for link in (0, 1, 17))
Reading = tuple[GpuReading[Asked], ...]


def read(hardware: Hardware, _memory: object, _options: Options) -> Reading | Absent:
    """The power state of each link: 0 awake, 1 asleep."""
    return read_gpus(hardware.nvml, lambda gpu: ask_gpu(hardware.nvml, gpu.key, QUESTIONS, Supported()))


def asleep(item: GpuReading[Asked]) -> int | None:
    """Links that sleep; None where no link says so."""
    if isinstance(item.value, Absent):
        return None
    states = [item.value.whole(question) for question in QUESTIONS]
    known = [state for state in states if not isinstance(state, Absent)]
    return sum(known) if known else None


def samples(reading: Reading, _memory: object) -> Iterable[Sample]:
    """One series for each GPU whose links were read."""
    for item in reading:
        links = asleep(item)
        if links is not None:
            yield ASLEEP.sample(links, str(item.gpu.index), item.gpu.uuid)


def judge(
    memories: Memories[None], ok: Ok[Reading], _policy: NoPolicy, _expect: Expect
) -> tuple[Memories[None], tuple[Finding, ...]]:
    """Sleep is no fault; a GPU that cannot be read is one that is not known."""

    def one(_memory: None, _gpu: Gpu, _value: Asked) -> tuple[None, tuple[Finding, ...]]:
        return None, ()

    return fold_gpus("nvlink_power", memories, ok.value, None, one)


COLLECTOR: Collector[Reading, Memories[None], Options, NoPolicy] = Collector(
    name="nvlink_power",
    about="links in their low power state",
    lane="nvml",
    options=Options(interval=60.0),
    policy=NoPolicy(),
    metrics=(ASLEEP,),
    series=8,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    applicable=lambda reading: any(asleep(item) is not None for item in reading),
    forget=forget_gone,
)
'''
RENAMED = (
    ("fans", "fan_speed"),
    ('Question("FanSpeed")', 'Question("FanSpeedRPM")'),
    ("gpu_fan_speed_ratio", "gpu_fan_speed_rpm"),
    ('"Fan speed, share of the highest."', '"Turns of the fan in a minute.", unit="rpm"'),
    ("percent / 100", "percent"),
    ("DEGRADED", "CONFIRMED"),
)
"""What makes another collector of the guide's: its name, its unit, and a rule that can be FAILED."""
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not system")
WHOLE = (
    "tests/alerts", "tests/chart/test_made.py", "tests/chart/test_manifests.py",
    "tests/dashboards/test_boards.py", "tests/dashboards/test_queries.py",
    "tests/tools/test_options.py", "tests/tools/test_pages.py",
    "tests/proof/rehearsal/test_page.py", "tests/proof/rehearsal/test_table.py",
)  # fmt: skip
"""Suites that look at every collector at once."""


def renamed() -> str:
    """Return the guide's example with all of RENAMED."""
    code = example()
    for old, new in RENAMED:
        assert old in code
        code = code.replace(old, new)
    return code


def named(name: str) -> list[str]:
    """Return the tests that the guide runs for a collector of this name."""
    (line,) = re.findall(
        r"^\.venv/bin/python -m pytest (-k fans .+)$", GUIDE.read_text("utf-8"), re.MULTILINE
    )
    return str(line).replace("fans", name).split()


def run(copy: Path, *command: str) -> str:
    """The output of a command in the copy, which must end well."""
    began = time.monotonic()
    path = os.pathsep.join((str(copy / "agent"), str(copy)))
    done = subprocess.run(
        command, cwd=copy, env=os.environ | {"PYTHONPATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    print(f"{time.monotonic() - began:.1f} s: {' '.join(command)}")
    assert done.returncode == 0, done.stdout
    return done.stdout


def checks(copy: Path) -> list[str]:
    """Return the commands of `make check`, but for the bounds of lines, which a new file may raise."""
    tools = f"BIN={Path(sys.executable).parent}"
    lines = run(
        copy, "make", "--no-print-directory", "--dry-run", "check", "--assume-old=.venv/.dev", tools
    ).splitlines()
    assert len(lines) > 5
    return [line for line in lines if "tools.measures" not in line]


def git(copy: Path, *command: str) -> str:
    named = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(
        ["git", *named, *command], cwd=copy, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What git knows of this tree, and what is new in it."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, tmp_path / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
    # What mypy knows of all other files: without it, it reads the whole tree.
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "before")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("fan_speed", renamed(), id="fan_speed"), pytest.param("fans", example(), id="fans"),
        pytest.param("nvlink_power", POWER, id="power"),
    ],
)  # fmt: skip
def test_a_collector_is_one_file(name: str, code: str, copy: Path) -> None:
    (copy / f"agent/wirewatch/collectors/{name}.py").write_text(code, "utf-8")
    run(copy, sys.executable, "-m", "tools.generated")
    for line in checks(copy):
        run(copy, *line.split())
    run(copy, sys.executable, *PYTEST, *named(name))
    run(copy, sys.executable, *PYTEST, *WHOLE)
    changed = git(copy, "status", "--porcelain", "--untracked-files=all").splitlines()
    goldens = {line for line in changed if "tests/node/goldens/" in line}
    assert goldens
    strange = [line for line in goldens if not (line.startswith("??") and line.endswith(f"/{name}.txt"))]
    assert not strange, git(copy, "diff", "--", "tests/node/goldens")[:2000]
