"""What is released, as far as it needs neither Helm's engine, a package index nor debhelper."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.commands import commands
from tools.release import debian, image, manual, source
from tools.release.source import ROOT, ReleaseError, Source

THE = Source("1.2.3", "0a" * 20, 1795450000)
SCRIPTS = sorted(ROOT.glob("deploy/debian/*inst")) + sorted(ROOT.glob("deploy/debian/*rm"))


def test_each_python_gets_the_wheels_that_its_markers_name() -> None:
    old, new = (debian.requirements("nccl", python) for python in ("3.11", "3.13"))
    assert re.findall(r"^numpy==(\S+) ", old, re.MULTILINE) != re.findall(
        r"^numpy==(\S+) ", new, re.MULTILINE
    )
    assert all(text.count("\nnumpy==") == 1 and ";" not in text for text in (old, new))
    assert re.search(r"^nvidia-nccl-cu13==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", old, re.MULTILINE)


def test_wheels_for_the_oldest_and_the_newest_libc_that_will_do_are_taken() -> None:
    names = list(debian.platforms())
    here = debian.PLATFORM
    assert names[0] == f"manylinux_2_28_{here}"
    assert {f"manylinux_2_17_{here}", f"manylinux2014_{here}", f"manylinux1_{here}"} <= set(names)
    assert not any(name.startswith("manylinux_2_29") for name in names)


def test_debians_tools_read_version_and_time_from_the_commit(tmp_path: Path) -> None:
    file = tmp_path / "changelog"
    file.write_text(debian.changelog(THE), "utf-8")
    told = subprocess.run(
        ["dpkg-parsechangelog", "-l", file, "-S", "Version", "-S", "Timestamp"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert told.split() in ([str(THE.epoch)], ["Version:", THE.version, "Timestamp:", str(THE.epoch)])
    assert f"({THE.version})" in file.read_text("utf-8")


@pytest.mark.parametrize(
    "script", [*SCRIPTS, ROOT / "deploy/debian/make-environment"], ids=lambda path: path.name
)
def test_the_scripts_of_the_package_are_posix(script: Path) -> None:
    assert len(SCRIPTS) == 3
    subprocess.run(["sh", "-n", script], check=True)
    text = script.read_text("utf-8")
    assert re.search(r"^set -eu?$", text, re.MULTILINE)
    assert script.name == "make-environment" or "\n#DEBHELPER#\n" in text


def test_each_command_of_a_list_has_a_manual_page(tmp_path: Path) -> None:
    manual.manuals(tmp_path / "man", THE.version, THE.epoch)
    made = {path.stem: path.read_text("utf-8") for path in (tmp_path / "man").iterdir()}
    names = {words.replace(" ", "-") for words, _ in commands()}
    assert names <= set(made)
    assert not any("prober" in name or "overlays" in name.replace("demo-overlays", "") for name in made)
    assert all(".SH NAME\nwirewatch" in text and "\n.SH SYNOPSIS\n" in text for text in made.values())
    assert "Say whether a job may start" in made["wirewatch-check"]


def test_each_shell_has_its_completion_by_the_name_that_it_looks_for(tmp_path: Path) -> None:
    manual.completions(tmp_path / "made")
    installed = (ROOT / "deploy/debian/wirewatch.install").read_text("utf-8")
    for path in (tmp_path / "made").iterdir():
        assert "_WIREWATCH_COMPLETE" in path.read_text("utf-8")
        assert f"built/completions/{path.name} " in installed
    assert len(list((tmp_path / "made").iterdir())) == len(manual.SHELLS)


def test_a_release_without_its_builder_stops_before_it_begins() -> None:
    with pytest.raises(ReleaseError, match="no-such-program is not installed"):
        image.Builder("no-such-program", "", f"debian@sha256:{'0' * 64}")


def test_what_a_package_is_made_of_is_there() -> None:
    """Or made by the release, in `built`."""
    for file in ROOT.glob("deploy/debian/*.install"):
        for line in file.read_text("utf-8").splitlines():
            what, _ = line.split()
            assert what.startswith("built/") or list(ROOT.glob(what)), what


@pytest.mark.parametrize("base", ["", "python:3.12", "python@sha256:0a"])
def test_an_image_on_a_base_that_may_move_is_not_released(base: str) -> None:
    with pytest.raises(ReleaseError, match="BASE=NAME@sha256"):
        image.Builder("docker", "", base)


def test_what_is_not_committed_is_not_released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words in (
        ["init", "-q"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    run = Source.run

    def there(this: Source, *command: str, **more: str) -> str:
        return run(this, *command, cwd=tmp_path, **more)

    monkeypatch.setattr(Source, "run", there)
    found = source.committed()
    assert re.fullmatch(r"[0-9a-f]{40}", found.revision)
    assert found.epoch > THE.epoch / 2
    (tmp_path / "new").write_text("", "utf-8")
    with pytest.raises(ReleaseError, match=r"^not committed: new$"):
        source.committed()


def test_a_missing_program_is_reported_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for program, package in (("dpkg-buildpackage", "dpkg-dev"), ("dh", "debhelper")):
        with pytest.raises(ReleaseError, match=f"^{program} is not installed: .*{package}"):
            debian.ready()
        (tmp_path / program).write_text("", "utf-8")
        (tmp_path / program).chmod(0o755)
    debian.ready()


def test_a_command_that_is_not_there_or_fails_is_reported() -> None:
    with pytest.raises(ReleaseError, match="nothing-of-this-name is not installed"):
        THE.run("nothing-of-this-name")
    with pytest.raises(ReleaseError, match=r"(?s)ended with 3:\nfor this reason"):
        THE.run("sh", "-c", "echo for this reason >&2; exit 3")
    assert THE.run("sh", "-c", "printf %s $SOURCE_DATE_EPOCH") == str(THE.epoch)
