"""What `make` does on a machine that it does not know: a wrong Python, no venv, a driver of CUDA 12."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import environment

ROOT = Path(__file__).parents[2]
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs)\nGCC version: gcc 11\n"
)
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Jan 22 00:20:25 UTC 2025\nGCC version: 12.2\n"
)
VENV = """
import sys
if sys.argv[1:3] == ["-m", "venv"]:
    from pathlib import Path
    Path(sys.argv[-1], "bin").mkdir(parents=True)
    print({said!r})
    sys.exit(1)
import runpy
sys.executable = __file__
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NO_ENSUREPIP = """The virtual environment was not created successfully because ensurepip is not available.
On Debian/Ubuntu systems, you need to install the python3-venv package

Failing command: /tmp/x/bin/python3
"""


@pytest.mark.parametrize("text", [OPEN, CLOSED])
@pytest.mark.parametrize(
    ("number", "extra"),
    [
        ("580.65.06", "nccl"),
        ("610.1", "nccl"),
        ("570.133.20", "nccl-cuda12"),
        ("525.60.13", "nccl-cuda12"),
        ("470.1", ""),
    ],
)
def test_the_driver_says_which_nccl_a_machine_gets(
    tmp_path: Path, text: str, number: str, extra: str
) -> None:
    file = tmp_path / "version"
    file.write_text(text.format(number), "utf-8")
    assert environment.engine(file) == extra


def test_without_a_driver_there_is_no_engine(tmp_path: Path) -> None:
    assert environment.engine(tmp_path / "version") == ""


def test_each_engine_is_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {extra for _, extra in environment.ENGINES} <= extras.keys()


def test_the_pythons_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lowest, beyond = (".".join(map(str, one)) for one in (environment.LOWEST, environment.BEYOND))
    assert project["requires-python"] == f">={lowest},<{beyond}"
    assert environment.unfit((3, 11)) == environment.unfit((3, 13)) == ""


@pytest.mark.parametrize("python", [(3, 10), (3, 14), (2, 7)])
def test_a_wrong_python_is_reported_in_one_line(python: tuple[int, int]) -> None:
    wrong = environment.unfit(python)
    assert "Python 3.11 to 3.13 is needed" in wrong
    assert f"is {python[0]}.{python[1]}: try `make run PYTHON=" in wrong
    assert "\n" not in wrong


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NO_ENSUREPIP, "apt install python3-venv"),
        ("Error: no space left\n", "cannot be made: Error: no space left"),
    ],
)
def test_an_environment_that_cannot_be_made_leaves_nothing_for_the_next_make(
    tmp_path: Path, said: str, told: str
) -> None:
    """A Python whose `venv` fails as Debian's does: after it has made bin/."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{VENV.format(said=said)}", "utf-8")
    python.chmod(0o755)
    place = tmp_path / "venv"
    words = ["make", "--no-print-directory", f"{place}/bin/python", f"VENV={place}", f"PYTHON={python}"]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode != 0
    first, *rest = done.stderr.splitlines()
    assert first.startswith("make: ")
    assert told in first
    assert all(line.startswith("make: ***") for line in rest)
    assert not place.exists()


@pytest.mark.parametrize(
    ("version", "results", "told"),
    [
        ("2.28.9", '{"probe": "page.md"}', "NCCL 2.28.9 is installed, with which the probe was measured"),
        ("2.32.3", '{"bandwidth": [1]}', "NCCL 2.32.3 is installed, with which the probe was measured"),
        ("2.30.7", '{"bandwidth": []}', "NCCL 2.30.7 is installed, with which nobody has measured the probe"),
        ("2.29.7", "", "NCCL 2.29.7 is installed, with which nobody has measured the probe"),
        ("", "", "no NCCL is installed"),
    ],
)
@pytest.mark.parametrize("package", environment.PACKAGES)
def test_make_run_says_which_nccl_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, version: str, results: str, told: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    if version:
        name = f"{package.replace('-', '_')}-{version}.dist-info"
        (tmp_path / name).mkdir()
        (tmp_path / name / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n", "utf-8")
    if results:
        (tmp_path / f"{version}.json").write_text(results, "utf-8")
    assert environment.nccl(tmp_path).startswith(told)
