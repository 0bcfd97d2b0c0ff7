"""The guard of the port without sockets: the names that it answers to, and who may ask."""

import asyncio
from base64 import b64encode
from hashlib import sha256
from typing import Any

import bcrypt
import pytest

from tests.rows import each
from wirewatch.server.guard import CERTIFICATE, TLS, Hosts, PortGuard, guarded
from wirewatch.server.passwords import BURST, Passwords
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.webconfig import Settings

REBOUND = (b"evil.example", b"evil.example:9410", b"localhost.evil.example", b"127.0.0.1.evil.example", b"")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_a_loopback_listener_answers_to_its_own_names_alone(address: str) -> None:
    hosts = Hosts.of((), address)
    for good in (
        b"localhost",
        b"LOCALHOST:9410",
        b"localhost.:1",
        b"127.0.0.1:9410",
        b"[::1]:9410",
        b"[::1]",
    ):
        assert hosts.answers(good), good
    for bad in REBOUND:
        assert not hosts.answers(bad), bad
    assert hosts.answers(None)
    assert Hosts.of(("Node-17.Example",), address).answers(b"node-17.example:9410")


def test_another_listener_answers_to_any_name_until_names_are_given() -> None:
    assert all(Hosts.of((), "0.0.0.0").answers(name) for name in REBOUND)
    named = Hosts.of(("node-17",), "::")
    assert named.answers(b"node-17:9410")
    assert named.answers(b"10.0.0.1:9410")
    assert not any(named.answers(name) for name in REBOUND)


USERS = {name: bcrypt.hashpw(secret, bcrypt.gensalt(4)) for name, secret in (("a", b"secret"), ("none", b""))}
TOKENS = {"b": sha256(b"correct-horse-battery").digest(), "c": sha256(b"another-horse-battery").digest()}
BOTH = Settings(users=USERS, tokens=TOKENS)
Answer = tuple[int, str, dict[str, list[str]]]


class Fixed(CurrentSettings):
    """Settings without a file."""

    def __init__(self, settings: Settings) -> None:
        self._fixed = settings

    def settings(self) -> Settings:
        return self._fixed


def asked(
    settings: Settings,
    given: bytes = b"",
    path: str = "/metrics",
    times: int = 1,
    host: bytes = b"localhost",
    **scope: Any,
) -> tuple[Answer, WebCounts]:
    """The last of several answers, and the counts; the application itself answers 200."""

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"X-Frame-Options", b"none"), (b"x-own", b"kept")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"here"})

    async def scenario() -> list[Any]:
        web = PortGuard(
            counts,
            Hosts.of((), "127.0.0.1"),
            Fixed(settings),
            Passwords(lambda: 0.0),
        )
        for _ in range(times):
            sent: list[Any] = []

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            headers = [(b"host", host), *([(b"authorization", given)] if given else [])]
            asking = {"path": path, "headers": headers, "state": {}, "client": ("10.0.0.7", 1), **scope}
            await guarded(application, web)(asking, None, send)  # type: ignore[arg-type]
        return sent

    counts = WebCounts()
    start, body = asyncio.run(scenario())
    named: dict[str, list[str]] = {}
    for name, value in start["headers"]:
        named.setdefault(name.decode(), []).append(value.decode())
    return (start["status"], body["body"].decode(), named), counts


def basic(text: bytes) -> bytes:
    return b"Basic " + b64encode(text)


@each(
    ("settings", "given", "status"),
    [
        (Settings(), b"", 200), (BOTH, b"", 401),
        (BOTH, basic(b"a:secret"), 200), (BOTH, b"bASIC " + b64encode(b"a:secret"), 200),
        (BOTH, basic(b"a:wrong"), 401), (BOTH, basic(b"none:"), 200),
        # Without a colon there is no user, although this one has no password.
        (BOTH, basic(b"none"), 401), (BOTH, b"Basic !", 401), (BOTH, basic(b"\xff:secret"), 401),
        (BOTH, b"Bearer correct-horse-battery", 200), (BOTH, b"bearer  another-horse-battery ", 200),
        (BOTH, b"Bearer wrong-horse-battery", 401), (BOTH, b"Digest correct-horse-battery", 401),
        (BOTH, basic(b"a:secret").replace(b"Basic", b"Digest"), 401),
        (Settings(users=USERS), b"Bearer correct-horse-battery", 401),
        (Settings(tokens=TOKENS), basic(b"a:secret"), 401),
    ],
)  # fmt: skip
def test_who_may_ask(settings: Settings, given: bytes, status: int) -> None:
    (told, body, headers), counts = asked(settings, given)
    assert told == status
    assert body == ("here" if status == 200 else "authentication required\n")
    reason = "credentials_wrong" if given else "credentials_missing"
    assert counts.report.refused[reason] == (status == 401)
    challenges = [word.partition(" ")[0] for word in headers.get("www-authenticate", [])]
    known = ["Basic"] * bool(settings.users) + ["Bearer"] * bool(settings.tokens)
    assert challenges == ([] if status == 200 else known)


def test_an_address_that_guesses_is_sent_away(caplog: pytest.LogCaptureFixture) -> None:
    (status, body, headers), counts = asked(BOTH, basic(b"a:wrong"), times=int(BURST) + 1)
    assert (status, headers["retry-after"], headers["content-length"]) == (429, ["2"], [str(len(body))])
    assert (counts.report.refused["throttled"], counts.report.refused["credentials_wrong"]) == (1, BURST)
    assert "refused 10.0.0.7: " in caplog.text


@pytest.mark.parametrize(
    ("path", "verified", "status"),
    [("/metrics", False, 401), ("/metrics", True, 200), ("/livez", False, 200)],
)
def test_a_certificate_is_asked_for_but_on_open_paths(path: str, verified: bool, status: int) -> None:  # noqa: FBT001
    (told, _, _), counts = asked(Settings(certificate=True), path=path, state={CERTIFICATE: verified})
    assert told == status
    assert counts.report.refused["certificate_missing"] == (status == 401)


def test_a_foreign_name_is_refused_on_open_paths_too() -> None:
    (status, body, headers), counts = asked(Settings(), path="/livez", host=b"evil.example")
    assert (status, body) == (421, "this Host name is not served here\n")
    assert headers["content-type"] == ["text/plain; charset=utf-8"]
    assert counts.report.refused["host"] == 1


def test_a_client_that_has_gone_is_refused_as_nobody(caplog: pytest.LogCaptureFixture) -> None:
    assert asked(BOTH, client=None)[0][0] == 401
    assert "refused : " in caplog.text


def test_configured_headers_are_added_and_replace_those_of_the_application() -> None:
    settings = Settings(headers=((b"x-frame-options", b"deny"),), users=USERS)
    (_, _, answered), _ = asked(settings, basic(b"a:secret"))
    assert answered == {"x-own": ["kept"], "x-frame-options": ["deny"]}
    (_, _, refused), _ = asked(settings)
    assert refused["x-frame-options"] == ["deny"]


@pytest.mark.parametrize(("begun", "now", "closed"), [("old", "old", False), ("old", "new", True)])
def test_a_connection_of_other_tls_settings_is_closed(begun: Any, now: Any, closed: bool) -> None:  # noqa: FBT001
    (_, _, headers), _ = asked(Settings(tls=now), state={TLS: begun})
    assert (headers.get("connection") == ["close"]) is closed


def test_without_a_web_configuration_names_alone_are_refused() -> None:
    assert PortGuard().settings() == Settings()
