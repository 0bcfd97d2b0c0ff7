"""`wirewatch fleet controller`: what it cannot start with is one line and exit code 78 or 64."""

from pathlib import Path

import pytest

from wirewatch.cli import CONFIG, USAGE, run


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('[controller]\nact = "drain"', "controller.act"),
        ("[controller]\nlease = 3", "controller.lease"),
        ('[controller.budget]\ncluster = "5 %"', "controller.budget.cluster"),
        ("[controller.budget]\nrack = -1", "controller.budget.rack"),
        ("[controller]\ntaint = true", "unknown key 'controller.taint'"),
        ("[controller]", "controller: no API server"),
        (
            '[kubernetes]\napi_server = "127.0.0.1:1"\ncredentials = "/nowhere"',
            "controller.namespace: not given",
        ),
        ('[kubernetes]\napi_server = "nowhere"', "controller: not HOST:PORT of an API server"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    lines: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "wirewatch.toml"
    file.write_text(lines, "utf-8")
    assert run(["fleet", "controller", "--config", str(file)]) == CONFIG
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("wirewatch: ")]
    assert told in line


def test_a_wrong_measure_on_the_command_line_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "controller", "--act", "drain"]) == USAGE
    assert "'drain'" in capsys.readouterr().err
