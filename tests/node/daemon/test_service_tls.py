"""TLS and authentication of a running daemon, asked by a real client: right, wrong, expired, rotated."""

import hashlib
import http.client
import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import bcrypt
import pytest

from tests.node.cli.checks import check
from tests.node.cli.test_wrong_input import CONFIG, refused
from tests.node.daemon.client import Answer, Client, ask, basic, bearer
from tests.node.daemon.process import FAST, SOON, Daemon
from tests.node.hw.children import until
from tests.node.server.authority import Authority
from tests.patience import HANGS
from wirewatch.server.reload import INTERVAL

PASSWORD, TOKEN = "secret", "correct-horse-battery"
WEB = """
tls_server_config:
  cert_file: here.crt
  key_file: here.key
http_server_config:
  headers:
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  prometheus: {hashed}
bearer_tokens:
  grafana: sha256:{token}
"""
CLIENTS = """
tls_server_config:
  cert_file: here.crt
  key_file: here.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ours.pem
  client_allowed_sans: [prometheus.monitoring]
"""
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
"""How the end of a handshake looks from outside; which of them depends on who was faster."""


def web() -> str:
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(8)).decode()
    return WEB.format(hashed=hashed, token=hashlib.sha256(TOKEN.encode()).hexdigest())


@dataclass(frozen=True)
class Place:
    """A daemon with its folder and who signs its certificates."""

    daemon: Daemon
    folder: Path
    authority: Authority

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return ask(self.daemon.url, path, self.authority.file, headers)

    def refused(self, reason: str) -> float:
        reply = self.get("/metrics", bearer(TOKEN))
        (line,) = [
            x
            for x in reply.text.splitlines()
            if x.startswith(f'wirewatch_web_refused_total{{reason="{reason}"')
        ]
        return float(line.split()[-1])


@contextmanager
def running(folder: Path, text: str, config: str = FAST) -> Iterator[Place]:
    authority = Authority(folder, "ours")
    authority.pair("here")
    file = folder / "web.yml"
    file.write_text(text, "utf-8")
    with Daemon(("--replay", "h200x1-idle", "--web-config", str(file)), folder, config) as daemon:
        yield Place(daemon, folder, authority)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("port"), web()) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Place]:
    with running(tmp_path, web()) as made:
        yield made


def soon(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (basic("prometheus", PASSWORD), 200),
        (basic("prometheus", "wrong"), 401),
        (basic("prometheus", ""), 401),
        (basic("nobody", PASSWORD), 401),
        (basic("grafana", TOKEN), 401),
        (bearer(TOKEN), 200),
        ({"Authorization": f"bearer  {TOKEN} "}, 200),
        (bearer(TOKEN[:-1]), 401),
        (bearer(PASSWORD), 401),
        (bearer(hashlib.sha256(TOKEN.encode()).hexdigest()), 401),
        (bearer(""), 401),
        ({"Authorization": "Basic !"}, 401),
        ({"Authorization": "Basic cHJvbWV0aGV1cw=="}, 401),
        ({"Authorization": "Basic /////w=="}, 401),
        ({"Authorization": "Digest username=prometheus"}, 401),
        ({"Authorization": TOKEN}, 401),
    ],
)
def test_who_may_ask(place: Place, headers: dict[str, str], status: int) -> None:
    # The wrong ones of this test alone are more than an address may have at once.
    while (reply := place.get("/api/v1/state", headers)).status == 429:
        time.sleep(float(reply.headers["retry-after"]))
    assert reply.status == status
    assert ("wirewatch.state/1" in reply.text) is (status == 200)
    assert reply.headers["strict-transport-security"] == "max-age=31536000"
    assert ("www-authenticate" in reply.headers) is (status == 401)


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/health", "/api/v1/state", "/openapi.json", "/nothing", "/livez/"]
)
def test_everything_needs_a_name_but_what_the_kubelet_asks(place: Place, path: str) -> None:
    assert place.get(path).status == 401
    for probe in ("/livez", "/readyz"):
        soon(lambda probe=probe: place.get(probe).status == 200)  # type: ignore[misc]


def test_no_secret_and_no_hash_is_in_the_log_or_the_answers(place: Place) -> None:
    for headers in (basic("prometheus", "wrong-guess"), bearer("wrong-token-wrong-token")):
        place.get("/api/v1/state", headers)
    told = place.daemon.log + "".join(
        place.get(path, bearer(TOKEN)).text for path in ("/metrics", "/api/v1/state", "/openapi.json")
    )
    for secret in (PASSWORD, TOKEN, "wrong-guess", "wrong-token", "$2b$"):
        assert secret not in told
    assert place.refused("credentials_wrong") >= 1


def test_a_stranger_s_certificate_is_not_believed(place: Place, tmp_path: Path) -> None:
    """The client's side of it: whoever stands between has no certificate of ours."""
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed"):
        ask(place.daemon.url, "/livez", Authority(tmp_path, "stranger").file)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(place: Place, version: ssl.TLSVersion) -> None:
    assert ask(place.daemon.url, "/livez", place.authority.file, most=version).status == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_tls_1_1_and_plain_http_are_refused_and_counted(place: Place) -> None:
    before = place.refused("tls")
    with pytest.raises(REFUSED):
        ask(place.daemon.url, "/livez", place.authority.file, most=ssl.TLSVersion.TLSv1_1)
    with closing(
        http.client.HTTPConnection(place.daemon.url.removeprefix("https://"), timeout=HANGS)
    ) as plain:
        plain.request("GET", "/livez")
        with pytest.raises(REFUSED):
            plain.getresponse()
    soon(lambda: place.refused("tls") == before + 2)
    assert "the TLS handshake failed" in place.daemon.log


def test_another_s_name_is_refused(place: Place) -> None:
    assert place.get("/livez", {"Host": "evil.example"}).status == 421


def test_new_connections_get_the_new_certificate_and_old_ones_are_answered_once_more(fresh: Place) -> None:
    """As the kubelet rotates a Secret, and then to one that has expired, which the client refuses."""
    with Client(fresh.daemon.url, fresh.authority.file) as old:
        first = old.get("/livez").serial
        assert fresh.get("/livez").serial == first
        new = fresh.authority.pair("here").serial
        soon(lambda: fresh.get("/livez").serial == new)
        assert new != first
        last = old.get("/livez")
        assert (last.status, last.serial, last.headers["connection"]) == (200, first, "close")
        # The client begins a new one by itself.
        again = old.get("/livez")
        assert (again.status, again.serial, again.headers.get("connection")) == (200, new, None)
    fresh.authority.pair("here", valid=timedelta(days=-1))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):  # noqa: PT012 - until it is shown
        for _ in range(100):
            time.sleep(0.1)
            fresh.get("/livez")


def test_a_rotation_while_a_connection_stays_open_is_seen_by_metric_and_by_users(fresh: Place) -> None:
    """The connection lives on, its user does not: who may ask is looked at with each question."""
    file = fresh.folder / "web.yml"
    with Client(fresh.daemon.url, fresh.authority.file) as open_all_the_time:
        user = basic("prometheus", PASSWORD)
        assert open_all_the_time.get("/api/v1/state", user).status == 200
        file.write_text(web().replace("prometheus:", "other:"), "utf-8")
        soon(lambda: open_all_the_time.get("/api/v1/state", user).status == 401)
        assert fresh.get("/api/v1/state", basic("other", PASSWORD)).status == 200


def test_a_broken_file_changes_nothing_and_shows(fresh: Place) -> None:
    name = "wirewatch_web_config_last_reload_success"
    assert f"{name} 1.0" in fresh.get("/metrics", bearer(TOKEN)).text
    shutil.copy(fresh.folder / "web.yml", fresh.folder / "good")
    (fresh.folder / "web.yml").write_text("basic_auth_users: {a: plain}", "utf-8")
    soon(lambda: f"{name} 0.0" in fresh.get("/metrics", bearer(TOKEN)).text)
    assert fresh.get("/health").status == 401
    assert fresh.get("/api/v1/state", basic("prometheus", PASSWORD)).status == 200
    assert "basic_auth_users.a: is not a bcrypt hash" in fresh.daemon.log
    os.replace(fresh.folder / "good", fresh.folder / "web.yml")  # noqa: PTH105 - in one step
    soon(lambda: f"{name} 1.0" in fresh.get("/metrics", bearer(TOKEN)).text)


def test_client_certificates(tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").pair("stranger", ["prometheus.monitoring"])
    with running(tmp_path, CLIENTS) as place:
        url, ours = place.daemon.url, place.authority.file
        right = place.authority.pair("prometheus", ["prometheus.monitoring"])
        assert ask(url, "/metrics", ours, pair=right).status == 200
        assert ask(url, "/metrics", ours).status == 401
        assert ask(url, "/livez", ours).status == 200
        other = place.authority.pair("other", ["other.monitoring"])
        late = place.authority.pair("late", ["prometheus.monitoring"], valid=timedelta(days=-1))
        for wrong in (stranger, other, late):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                with pytest.raises(REFUSED):
                    ask(url, "/livez", ours, pair=wrong, most=version)
        told = ask(url, "/metrics", ours, pair=right).text
        for reason, count in (("tls", 4), ("certificate_name", 2), ("certificate_missing", 1)):
            assert f'wirewatch_web_refused_total{{reason="{reason}"}} {count}.0' in told
        # Without a path that is open the handshake itself refuses.
        (tmp_path / "web.yml").write_text(CLIENTS + "auth_excluded_paths: []\n", "utf-8")
        time.sleep(INTERVAL)
        assert ask(url, "/livez", ours, pair=right).status == 200
        with pytest.raises(REFUSED):
            ask(url, "/livez", ours)


def test_local_callers_need_no_name(tmp_path: Path) -> None:
    """The file of a socket says who may; `check` goes on as before."""
    socket = str(tmp_path / "wirewatch.sock")
    with running(tmp_path, web(), FAST.replace('socket = ""', f'socket = "{socket}"')) as place:
        soon(lambda: "wirewatch.health/1" in place.get("/health", bearer(TOKEN)).text)
        assert check("--cached", "--socket", socket, "--fail-on", "failed").code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [("tls_server_config: {cert_file: nowhere}", "key_file"), ("spelling: 1", "unknown key 'spelling'")],
)
def test_a_wrong_web_configuration_ends_the_start(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(text, "utf-8")
    assert told in refused(CONFIG, "serve", "--replay", "h200x1-idle", "--web-config", str(file))
    config = tmp_path / "wirewatch.toml"
    config.write_text(f'[listen]\nweb_config = "{file}"\naddress = "127.0.0.1:0"\n', "utf-8")
    assert told in refused(CONFIG, "serve", "--replay", "h200x1-idle", "--config", str(config))


def test_whoever_listens_for_others_without_a_web_configuration_is_reported(tmp_path: Path) -> None:
    """And only he: one line, where the port is reached from elsewhere."""
    arguments = ("--replay", "h200x1-idle", "--listen")
    with Daemon((*arguments, "0.0.0.0:0"), tmp_path) as daemon:
        until(lambda: "no web configuration" in daemon.log)
        daemon.ready()
        assert daemon.log.count("no web configuration") == 1
    with Daemon((*arguments, "127.0.0.1:0"), tmp_path) as daemon:
        daemon.ready()
        assert "no web configuration" not in daemon.log
    (tmp_path / "web.yml").write_text(f"bearer_tokens: {{a: 'sha256:{'0' * 64}'}}", "utf-8")
    with Daemon((*arguments, "0.0.0.0:0", "--web-config", str(tmp_path / "web.yml")), tmp_path) as daemon:
        until(lambda: "unencrypted" in daemon.log)
