"""The port as Debian's curl and Prometheus see it: TLS, passwords, tokens, certificates, rotation."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import bcrypt
import pytest

from tests.node.daemon.process import FAST, SOON, Daemon
from tests.node.server.authority import Authority

pytestmark = pytest.mark.system

TOKEN = "correct-horse-battery"  # noqa: S105 - of these tests
UNVERIFIED, HANDSHAKE, REFUSED = 60, 35, 22
"""curl's exit codes: the server's certificate is not good, TLS ended, and `--fail` for 4xx."""
GONE = {HANDSHAKE, 52, 56}
"""A handshake that the server ends after the client's part of it: TLS 1.3 tells it late, or not at all."""
WEB = """
tls_server_config:
  cert_file: here.crt
  key_file: here.key
"""
CLIENTS = """  client_ca_file: ours.pem
  client_auth_type: RequireAndVerifyClientCert
auth_excluded_paths: []
"""


def users(**passwords: str) -> str:
    hashed = {
        user: bcrypt.hashpw(text.encode(), bcrypt.gensalt(10)).decode() for user, text in passwords.items()
    }
    return "basic_auth_users:\n" + "".join(f"  {user}: {text}\n" for user, text in hashed.items())


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: tests/system/packages installs it"
    return found


def curl(url: str, authority: Path, *arguments: str) -> int:
    """curl's exit code."""
    command = [program("curl"), "--silent", "--fail", "--output", "/dev/null", "--max-time", "20"]
    return subprocess.run([*command, "--cacert", str(authority), *arguments, url], check=False).returncode


@contextmanager
def daemon(folder: Path, text: str) -> Iterator[tuple[str, Authority]]:
    authority = Authority(folder, "ours")
    authority.pair("here")
    (folder / "web.yml").write_text(text, "utf-8")
    arguments = ("--replay", "h200x1-idle", "--web-config", str(folder / "web.yml"))
    with Daemon(arguments, folder, FAST) as running:
        yield running.url, authority


def soon(wanted: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + SOON
    while not wanted():
        assert time.monotonic() < end, told()
        time.sleep(0.2)


def test_curl_with_users_and_tokens(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n", "utf-8")
    text = WEB + users(prometheus="secret") + "bearer_token_files: {grafana: token}\n"
    with daemon(tmp_path, text) as (url, authority):
        metrics, ours = f"{url}/metrics", authority.file
        assert curl(f"{url}/livez", ours) == 0
        assert curl(metrics, ours) == REFUSED
        assert curl(metrics, ours, "--user", "prometheus:secret") == 0
        assert curl(metrics, ours, "--user", "prometheus:wrong") == REFUSED
        assert curl(metrics, ours, "--user", "nobody:secret") == REFUSED
        assert curl(metrics, ours, "--oauth2-bearer", TOKEN) == 0
        assert curl(metrics, ours, "--oauth2-bearer", TOKEN[::-1]) == REFUSED
        old = ("--tlsv1.1", "--tls-max", "1.1", "--ciphers", "DEFAULT:@SECLEVEL=0")
        assert curl(f"{url}/livez", ours, *old) == HANDSHAKE
        assert curl(f"{url}/livez", Authority(tmp_path, "stranger").file) == UNVERIFIED
        # The token's file is replaced, as a mounted Secret's is.
        (tmp_path / "new").write_text(TOKEN[::-1], "utf-8")
        (tmp_path / "new").replace(tmp_path / "token")
        soon(lambda: curl(metrics, ours, "--oauth2-bearer", TOKEN[::-1]) == 0)
        assert curl(metrics, ours, "--oauth2-bearer", TOKEN) == REFUSED
        authority.pair("here", valid=timedelta(days=-1))
        soon(lambda: curl(f"{url}/livez", ours) == UNVERIFIED)


def test_curl_with_client_certificates(tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").pair("stranger")
    with daemon(tmp_path, WEB + CLIENTS) as (url, authority):
        live, ours = f"{url}/livez", authority.file
        mine = authority.pair("mine")
        late = authority.pair("late", valid=timedelta(days=-1))
        for version in ("1.2", "1.3"):
            asked = (live, ours, "--tls-max", version)
            assert curl(*asked, "--cert", str(mine.certificate), "--key", str(mine.key)) == 0
            assert curl(*asked) in GONE
            for wrong in (stranger, late):
                assert curl(*asked, "--cert", str(wrong.certificate), "--key", str(wrong.key)) in GONE


class Prometheus:
    """Debian's, with one target; ends with the block."""

    def __init__(self, folder: Path, target: str, authority: Path) -> None:
        password = folder / "password"
        scheme, _, address = target.partition("://")
        scrape = {
            "job_name": "wirewatch", "scheme": scheme, "scrape_interval": "1s", "scrape_timeout": "1s",
            "tls_config": {"ca_file": str(authority), "server_name": "localhost"},
            "basic_auth": {"username": "prometheus", "password_file": str(password)},
            "static_configs": [{"targets": [address]}],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}), "utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        arguments = (
            f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={self._address}",
        )  # fmt: skip
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen([program("prometheus"), *arguments], stderr=self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def target(self) -> dict[str, Any]:
        """How its one target is."""
        try:
            with urlopen(f"http://{self._address}/api/v1/targets", timeout=5) as reply:
                (target,) = json.load(reply)["data"]["activeTargets"]
        except (OSError, ValueError):
            return {"health": "not there yet", "lastError": ""}
        assert isinstance(target, dict)
        return target

    def value(self, query: str) -> float:
        with urlopen(f"http://{self._address}/api/v1/query?query={query}", timeout=5) as reply:
            (sample,) = json.load(reply)["data"]["result"]
        return float(sample["value"][1])

    def until(self, health: str, error: str = "") -> None:
        soon(lambda: self.target()["health"] == health and error in self.target()["lastError"], self.target)


def test_prometheus_scrapes_through_rotations_of_password_and_certificate(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret", "utf-8")
    with (
        daemon(tmp_path, WEB + users(prometheus="secret")) as (url, authority),
        Prometheus(tmp_path, url, authority.file) as prometheus,
    ):
        prometheus.until("up")
        assert prometheus.value("wirewatch_web_config_last_reload_success") == 1
        assert prometheus.value("count(wirewatch_build_info)") == 1
        (tmp_path / "web.yml").write_text(WEB + users(prometheus="new"), "utf-8")
        prometheus.until("down", "401 Unauthorized")
        (tmp_path / "password").write_text("new", "utf-8")
        prometheus.until("up")
        authority.pair("here")
        time.sleep(3)
        assert prometheus.target()["health"] == "up"
        authority.pair("here", valid=timedelta(days=-1))
        prometheus.until("down", "expired")
        Authority(tmp_path, "stranger").pair("here")
        prometheus.until("down", "unknown authority")
        authority.pair("here")
        prometheus.until("up")
