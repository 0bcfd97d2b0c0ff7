"""A test that skips says why, and the reason is one of a list."""

import re
import subprocess
import sys

import pytest

from tests.processes import ROOT
from tests.recorded import HERE, OWN, PUBLISHED

FILE = """
import pytest

@pytest.mark.skipif(True, reason="jq is not installed")
def test_allowed_before(): pass

def test_allowed_inside(): pytest.skip("/dev/kmsg: Permission denied")

@pytest.mark.skipif(True, reason="jq is not installed, nor anything else")
def test_refused_before(): pass

def test_refused_inside(): pytest.skip("recorded results are not here")

@pytest.mark.parametrize("file", [])
def test_of_nothing(file): pass

@pytest.mark.xfail(reason="expected")
def test_expected(): raise AssertionError
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("skips")
    (folder / "conftest.py").write_text(
        "from tests.skips import Skips\n\n"
        "def pytest_configure(config): config.pluginmanager.register(Skips())\n"
    )
    (folder / "test_some.py").write_text(FILE)
    (folder / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-q", "--rootdir", folder, "-p", "no:cacheprovider",
         "--continue-on-collection-errors", folder],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    return done.stdout


def test_what_is_allowed_stays_a_skip_with_its_reason(said: str) -> None:
    assert "SKIPPED [1] test_some.py:4: jq is not installed" in said
    assert "/dev/kmsg: Permission denied" in said
    assert "2 skipped" in said


@pytest.mark.parametrize("name", ["refused_before", "refused_inside", "of_nothing"])
def test_any_other_reason_fails_the_test(said: str, name: str) -> None:
    assert re.search(rf"^(FAILED|ERROR) test_some.py::test_{name}\b", said, re.MULTILINE)


def test_a_whole_file_does_not_skip(said: str) -> None:
    assert "ERROR test_whole.py" in said


def test_every_recorded_output_is_here_and_has_its_source() -> None:
    page = (HERE / "README.md").read_text("utf-8")
    for folder, count in ((OWN, 10), (PUBLISHED, 10)):
        files = [file.name for file in folder.iterdir()]
        assert len(files) == count
        named = [name.strip("`").rpartition("/")[2].split("*")[0] for name in re.findall(r"`[^`]+`", page)]
        assert [name for name in files if not any(n and name.startswith(n) for n in named)] == []
