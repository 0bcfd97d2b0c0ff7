"""The settings follow their files: what is broken changes nothing, what is weaker neither."""

import hashlib
import logging
import os
import ssl
from pathlib import Path

import pytest

from tests.node.server.authority import Authority
from wirewatch.server.reload import INTERVAL, CurrentSettings, WebCounts, samples
from wirewatch.server.webconfig import Settings, WebConfigError

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
TLS = "tls_server_config: {cert_file: here.crt, key_file: here.key}\n"
USERS = f"basic_auth_users: {{prometheus: {HASH}}}\n"
TOKEN = "correct-horse-battery"  # noqa: S105 - of these tests


class Followed:
    """Settings over a file in a folder, on a clock that is moved by each look."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "web.yml"
        self.file.write_text(text, "utf-8")
        self.seconds = 0.0
        self.counts = WebCounts(now=lambda: 1000.0 + self.seconds)
        self.current = CurrentSettings(self.file, self.counts, lambda: self.seconds)

    def look(self, text: str | None = None) -> Settings:
        if text is not None:
            self.file.write_text(text, "utf-8")
        self.seconds += INTERVAL
        return self.current.settings()

    def told(self) -> tuple[float, float]:
        found = {s.metric.name: s.value for s in samples(self.counts.report)}
        name = "web_config_last_reload_success"
        return found[name], found[f"{name}_timestamp_seconds"]


def test_a_changed_file_holds_from_the_next_look_and_no_look_is_more_than_one_a_second(
    tmp_path: Path,
) -> None:
    followed = Followed(tmp_path, USERS)
    before = followed.look()
    followed.file.write_text(USERS.replace("prometheus", "other"), "utf-8")
    assert followed.current.settings() is before
    assert list(followed.look().users) == ["other"]
    assert followed.told() == (1, 1002)


def test_a_file_that_does_not_change_is_not_read_again(tmp_path: Path) -> None:
    followed = Followed(tmp_path, USERS)
    assert followed.look() is followed.look() is followed.look()


@pytest.mark.parametrize(
    "broken", ["basic_auth_users: {prometheus: secret}", "[", "bearer_token_files: {a: nowhere}"]
)
def test_a_broken_file_changes_nothing_and_is_reported_once(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    followed = Followed(tmp_path, USERS)
    before = followed.look()
    with caplog.at_level(logging.INFO):
        assert followed.look(broken) is before
        assert followed.told() == (0, 1000)
        assert followed.look() is before
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the settings stay as they were" in record.message
    assert "secret" not in record.message
    assert followed.look(USERS).users
    assert followed.told() == (1, 1004)


def test_a_file_that_goes_and_comes_back(tmp_path: Path) -> None:
    followed = Followed(tmp_path, USERS)
    followed.file.unlink()
    assert followed.look().users
    assert followed.told()[0] == 0
    followed.look(USERS)
    assert followed.told()[0] == 1


def test_a_file_that_was_missing_is_found_when_it_comes(tmp_path: Path) -> None:
    followed = Followed(tmp_path, USERS)
    followed.look(USERS + "bearer_token_files: {a: token}\n")
    assert followed.told()[0] == 0
    (tmp_path / "token").write_text(TOKEN, "utf-8")
    assert followed.look().tokens == {"a": hashlib.sha256(TOKEN.encode()).digest()}


def test_the_swapped_links_of_a_mounted_secret_are_a_change(tmp_path: Path) -> None:
    for name, token in (("..1", TOKEN), ("..2", TOKEN[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(token, "utf-8")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    followed = Followed(tmp_path, "bearer_token_files: {a: token}\n")
    before = followed.look().tokens
    (tmp_path / "..new").symlink_to("..2")
    os.replace(tmp_path / "..new", tmp_path / "..data")  # noqa: PTH105 - what the kubelet calls
    assert followed.look().tokens != before


def test_a_certificate_is_followed_and_half_a_rotation_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    authority.pair("here")
    followed = Followed(tmp_path, TLS)
    before = followed.look().tls
    assert before is not None
    kept = (tmp_path / "here.key").read_bytes()
    authority.pair("here")
    new = (tmp_path / "here.key").read_bytes()
    (tmp_path / "here.key").write_bytes(kept)
    assert followed.look().tls is before
    assert followed.told()[0] == 0
    (tmp_path / "here.key").write_bytes(new)
    assert followed.look().tls is not before
    assert followed.told()[0] == 1


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (USERS, "", "authentication"),
        (USERS + TLS, USERS, "TLS"),
        (TLS.replace("}", ", client_ca_file: ours.pem, client_auth_type: RequireAndVerifyClientCert}"), TLS,
         "client certificates"),
    ],
)  # fmt: skip
def test_half_a_file_opens_nothing(
    tmp_path: Path, before: str, after: str, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor that empties a file before it fills it again; and whoever means it restarts."""
    Authority(tmp_path, "ours").pair("here")
    followed = Followed(tmp_path, before)
    held = followed.look()
    assert followed.look(after) is held
    assert f"only a restart can take away {lost}" in caplog.text
    assert followed.told()[0] == 0


def test_more_may_be_asked_for_without_a_restart(tmp_path: Path) -> None:
    Authority(tmp_path, "ours").pair("here")
    followed = Followed(tmp_path, "")
    assert followed.look().asks is False
    assert followed.look(USERS).asks is True
    assert isinstance(followed.look(USERS + TLS).tls, ssl.SSLContext)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tls_server_config: {cert_file: no.crt, key_file: here.key}", "no.crt: No such file"),
        ("tls_server_config: {cert_file: here.crt, key_file: other.key}", "other.key: not the key of the"),
        ("tls_server_config: {cert_file: here.key, key_file: here.key}", "here.key"),
        ("tls_server_config: {cert_file: web.yml, key_file: here.key}", "web.yml"),
        ("tls_server_config: {cert_file: here.crt, key_file: locked.key}", "the key without a password"),
        (
            TLS.replace("}", ", client_ca_file: web.yml, client_auth_type: VerifyClientCertIfGiven}"),
            "web.yml",
        ),
        (TLS.replace("}", ", cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]}"), "unknown or too weak"),
        (TLS.replace("}", ", cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12}"), "for TLS 1.2"),
        ("bearer_token_files: {a: short}", "not a token: at least 16"),
        ("bearer_token_files: {a: two}", "in one word"),
        (
            f"bearer_token_files: {{a: good}}\nbearer_tokens: {{a: 'sha256:{'0' * 64}'}}",
            "is in bearer_tokens",
        ),
    ],
)
def test_files_that_cannot_be_used_at_the_start(tmp_path: Path, text: str, told: str) -> None:
    authority = Authority(tmp_path, "ours")
    authority.pair("other")
    authority.lock(authority.pair("here"), tmp_path / "locked.key")
    for name, token in (("short", "0123456789"), ("two", "two words make none"), ("good", TOKEN)):
        (tmp_path / name).write_text(token, "utf-8")
    with pytest.raises(WebConfigError) as caught:
        Followed(tmp_path, text)
    (line,) = str(caught.value).splitlines()
    assert told in line


def test_refusals_of_one_reason_are_logged_once_a_minute_and_all_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    counts = WebCounts(mono=lambda: now[0])
    for now[0], detail in ((0.0, ""), (59.0, ""), (60.0, "no shared cipher"), (60.0, "")):
        counts.refuse("tls", "10.0.0.7", detail)
    counts.refuse("host", "10.0.0.8")
    first, again, other = (record.message for record in caplog.records)
    assert again == f"{first} (no shared cipher)"
    assert other.startswith("refused 10.0.0.8: a Host header")
    assert (counts.report.refused["tls"], counts.report.refused["host"]) == (4, 1)


def test_a_missing_web_configuration(tmp_path: Path) -> None:
    with pytest.raises(WebConfigError, match=r"nowhere\.yml: No such file"):
        CurrentSettings(tmp_path / "nowhere.yml", WebCounts())
