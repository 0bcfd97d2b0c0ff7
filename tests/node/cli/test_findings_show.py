"""`wirewatch findings show`: text and document from a running daemon, exit codes, and what goes wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.cli.schemas import complaints
from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch

OK, FAILED, USAGE, NO_ANSWER = 0, 2, 64, 69
DOWN = 'about = "a link is down"\n[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nset = 0\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("show")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    (folder / "down.toml").write_text(DOWN, "utf-8")
    config = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", "demo-dgx-h200", "--overlay", f"{folder}/down.toml"), folder, config) as running:
        running.ready()
        running.wait("/health", '"health":"failed"')
        yield running


def show(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints."""
    done = run_wirewatch("findings", "show", *words, "--socket", f"{folder}/w.sock")
    return done.returncode, done.stdout, done.stderr


def name_of(daemon: Daemon) -> str:
    (finding,) = daemon.get("/api/v1/findings").json()["findings"]
    return str(finding["id"])


def test_the_text_is_of_this_finding_and_the_exit_code_the_node_s_health(
    daemon: Daemon, folder: Path
) -> None:
    name = name_of(daemon)
    code, text, error = show(folder, name)
    assert (code, error) == (FAILED, "")
    assert text.isascii()
    lines = text.splitlines()
    assert lines[0] == f"wirewatch finding {name}: FAILED nvlink.link_down, GPU 2 link 7"
    told = dict(line.split(maxsplit=1) for line in lines if line.startswith(("UUID ", "VBIOS ", "since ")))
    assert told["VBIOS"] == "96.00.A5.00.1A"
    assert told["since"].endswith("Z")
    assert any(line.split()[:2] == ["nvlink_link_up", "0"] for line in lines)
    assert show(folder, name[:4])[1].splitlines()[0] == lines[0]


def test_the_document_is_of_its_schema(daemon: Daemon, folder: Path) -> None:
    name = name_of(daemon)
    code, text, _ = show(folder, name, "--json")
    assert code == FAILED
    assert complaints("wirewatch.finding.1", text) == []
    document = json.loads(text)
    assert (document["schema"], document["health"]) == ("wirewatch.finding/1", "failed")
    assert document["finding"]["id"] == name
    reply = daemon.get(f"/api/v1/findings/{name}")
    assert (reply.status, reply.json()["part"]) == (200, document["part"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("00000000", "no finding has an id that begins with '00000000'"),
        ("00", "at least 4 digits"),
        ("../..", "is not the id of a finding"),
        ("\u0665\u0665\u0665\u0665", "is not the id of a finding"),
    ],
)
@pytest.mark.usefixtures("daemon")
def test_an_id_that_is_none_gets_one_line(folder: Path, name: str, said: str) -> None:
    code, output, error = show(folder, name)
    assert (code, output, error.count("\n")) == (USAGE, "", 1)
    assert said in error


def test_over_http_an_unknown_id_is_not_found(daemon: Daemon) -> None:
    reply = daemon.get("/api/v1/findings/00000000")
    assert (reply.status, list(reply.json())) == (404, ["detail"])


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    code, output, error = show(tmp_path, "00000000")
    assert (code, output, error.count("\n")) == (NO_ANSWER, "", 1)
    assert str(tmp_path) in error
