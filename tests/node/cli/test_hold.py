"""`wirewatch hold`: what it makes and ends, what it waits for, and what it says."""

import fcntl
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirewatch.cli import hold as module
from wirewatch.core.ports import Hold
from wirewatch.probe.holds import LOCK, HoldFolder, since_boot

JOB = "slurm:4711"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "holds"
    made.mkdir()
    (made / LOCK).touch()
    (tmp_path / "wirewatch.toml").write_text(f'[probe]\nholds = "{made}"\n', "utf-8")
    return made


def run(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(module.hold, ["--config", str(folder.with_name("wirewatch.toml")), *words])
    return done.exit_code, done.output


def active(folder: Path) -> list[Hold]:
    told = HoldFolder(str(folder)).active()
    assert isinstance(told, tuple)
    return list(told)


def test_a_hold_of_some_gpus_for_a_time_and_its_end(folder: Path) -> None:
    before = since_boot()
    said = run(folder, "--owner", JOB, "--gpus", "0,3", "--for", "1h")
    assert said == (0, f"{JOB}: probes are held off, no probe runs there\n")
    (made,) = active(folder)
    assert (made.owner, made.gpus) == (JOB, (0, 3))
    assert 3600 <= made.until - before < 3700
    assert run(folder, "--owner", JOB, "--end") == (0, f"{JOB}: 1 hold ended\n")
    assert active(folder) == []
    assert run(folder, "--owner", JOB, "--end") == (0, f"{JOB}: 0 holds ended\n")


def test_without_more_it_is_of_all_gpus_for_ten_minutes(folder: Path) -> None:
    before = since_boot()
    assert run(folder, "--owner", "pod:8c4f2d6b-9e1a-4c3d-a2b7-f0e95d136849")[0] == 0
    (made,) = active(folder)
    assert made.gpus is None
    assert 600 <= made.until - before < 700


def test_a_probe_that_does_not_end_in_time_is_said_and_the_hold_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        code, said = run(folder, "--owner", JOB)
    assert (code, "not gone after 0.1 s" in said) == (70, True)
    assert len(active(folder)) == 1


def test_where_no_hold_can_be_made_it_says_so(folder: Path) -> None:
    (folder / LOCK).unlink()
    code, said = run(folder, "--owner", JOB)
    assert (code, f"{folder / LOCK}: No such file" in said) == (70, True)
    assert "probes are held off, whether one still runs is not known" in said
    assert len(active(folder)) == 1
    for name in folder.iterdir():
        name.unlink()
    folder.rmdir()
    code, said = run(folder, "--owner", JOB)
    assert (code, f"{folder}: No such file" in said) == (70, True)


def test_where_users_can_write_it_says_that_no_hold_is_believed(folder: Path) -> None:
    folder.chmod(0o777)
    done = CliRunner().invoke(
        module.hold, ["--config", str(folder.with_name("wirewatch.toml")), "--owner", JOB]
    )
    assert "others than root can write there" in str(done.exception)


def test_where_holds_are_switched_off_none_is_made(folder: Path) -> None:
    folder.with_name("wirewatch.toml").write_text('[probe]\nholds = ""\n', "utf-8")
    done = CliRunner().invoke(
        module.hold, ["--config", str(folder.with_name("wirewatch.toml")), "--owner", JOB]
    )
    assert "no probe of this node looks for holds" in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--owner", "docker:7"),
        ("--owner", "slurm:../7"),
        ("--owner", "slurm:7.1"),
        ("--owner", "pod:ml/train-0"),
        ("--owner", f"slurm:{'7' * 65}"),
        ("--owner", JOB, "--gpus", "0-3"),
        ("--owner", JOB, "--gpus", ""),
        ("--owner", JOB, "--for", "2d"),
        ("--owner", JOB, "--for", "0"),
        ("--owner", JOB, "--end", "--for", "1h"),
        ("--owner", JOB, "--end", "--gpus", "0"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(folder: Path, words: tuple[str, ...]) -> None:
    assert run(folder, *words)[0] == 2
    assert active(folder) == []
