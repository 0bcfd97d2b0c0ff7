"""Where the API server is, and who we are there."""

from pathlib import Path

import pytest

from wirewatch.config import ConfigError, load
from wirewatch.core.types import Unusable
from wirewatch.kubernetes.api import Credentials, Place, place, read

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443", "NODE_NAME": "gpu-017"}


@pytest.mark.parametrize(
    ("server", "node", "environ", "found"),
    [
        ("", "", POD, ("10.96.0.1", 6443, "gpu-017")),
        ("", "", {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, ("fd00::1", 6443, "gpu-017")),
        ("", "", {"KUBERNETES_SERVICE_HOST": "api.example", "NODE_NAME": "a"}, ("api.example", 443, "a")),
        ("api.example.org:8443", "gpu-1", POD, ("api.example.org", 8443, "gpu-1")),
        ("[fd00::1]:443", "ip-10-0-0-1.ec2.internal", {}, ("fd00::1", 443, "ip-10-0-0-1.ec2.internal")),
    ],
)
def test_the_configuration_goes_before_what_a_pod_is_told(
    server: str, node: str, environ: dict[str, str], found: tuple[str, int, str]
) -> None:
    made = place(server, "/account", node, environ)
    assert (made.host, made.port, made.node) == found
    assert made.folder == Path("/account")


@pytest.mark.parametrize(
    ("server", "node", "environ", "told"),
    [
        ("", "", {}, "which node this is must be told"),
        ("", "../../secrets", POD, "not the name of a node"),
        ("", "GPU-017", POD, "not the name of a node"),
        ("", "a" * 300, POD, "not the name of a node"),
        ("", "gpu-017", {}, "KUBERNETES_SERVICE_HOST is not set"),
        ("10.0.0.1", "gpu-017", POD, "not HOST:PORT of an API server: '10.0.0.1'"),
        ("10.0.0.1:0", "gpu-017", POD, "not HOST:PORT"),
        ("10.0.0.1:70000", "gpu-017", POD, "not HOST:PORT"),
        ("a b:443", "gpu-017", POD, "not HOST:PORT"),
        (".example:443", "gpu-017", POD, "not HOST:PORT"),
        (":443", "gpu-017", POD, "not HOST:PORT"),
        ("", "gpu-017", {**POD, "KUBERNETES_SERVICE_PORT": "tcp://10.0.0.1:443"}, "not HOST:PORT"),
    ],
)
def test_what_is_not_told_or_no_name_is_one_line(
    server: str, node: str, environ: dict[str, str], told: str
) -> None:
    with pytest.raises(Unusable, match=r"^kubernetes\.node_condition: ") as caught:
        place(server, "/account", node, environ)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a\nb", "a b", "ä", "x" * 70_000])
def test_a_file_without_a_token_is_told_without_its_content(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, "utf-8")
    with pytest.raises(OSError, match=r"token holds no token$"):
        read(Place("127.0.0.1", 443, tmp_path, "a"))


def test_a_token_is_not_printed() -> None:
    assert "secret" not in repr(Credentials("secret", None, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("condition_heartbeat = 1.0", "kubernetes.condition_heartbeat: "),
        ("condition_failed_after = 0.0", "kubernetes.condition_failed_after: "),
        ("condition_hold = 3", "unknown key 'kubernetes.condition_hold'"),
        ('node_condition = "yes"', "kubernetes.node_condition: "),
    ],
)
def test_what_the_configuration_refuses(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f"[kubernetes]\n{line}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, ())
    assert told in str(caught.value)
