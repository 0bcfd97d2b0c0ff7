"""The web configuration file: what it means, and one clear line for what it cannot mean."""

import ssl
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.node.server.authority import Authority
from tests.rows import each
from wirewatch.server.webconfig import Settings, WebConfigError, parse, settings

FILE = Path("web.yml")
HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
TLS = "tls_server_config:\n  cert_file: a.crt\n  key_file: a.key\n"


def refused(text: str) -> str:
    with pytest.raises(WebConfigError) as caught:
        parse(text, FILE)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("web.yml: ")
    return line


@pytest.mark.parametrize(
    ("names", "certificate", "admitted"),
    [
        ((), {}, True), (("a",), {}, False),
        (("a", "b"), {"subjectAltName": (("DNS", "x"), ("IP Address", "b"))}, True),
        (("a",), {"subjectAltName": (("a", "x"),)}, False),
    ],
)  # fmt: skip
def test_a_certificate_needs_one_of_the_allowed_names(
    names: tuple[str, ...], certificate: dict[str, Any], *, admitted: bool
) -> None:
    assert Settings(names=frozenset(names)).admits(certificate) is admitted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    Authority(made, "ours").pair("here")
    return made


def context(folder: Path, more: str = "", rest: str = "") -> ssl.SSLContext:
    text = f"tls_server_config: {{cert_file: here.crt, key_file: here.key{more}}}\n{rest}"
    made = settings(parse(text, FILE), folder).tls
    assert made is not None
    return made


REQUIRED = ", client_ca_file: ours.pem, client_auth_type: RequireAndVerifyClientCert"
GIVEN = REQUIRED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
NO_PATHS = "auth_excluded_paths: []"


@pytest.mark.parametrize(
    ("more", "rest", "mode"),
    [
        ("", "", ssl.CERT_NONE), (REQUIRED, "", ssl.CERT_OPTIONAL), (REQUIRED, NO_PATHS, ssl.CERT_REQUIRED),
        (GIVEN, "", ssl.CERT_OPTIONAL), (GIVEN, NO_PATHS, ssl.CERT_OPTIONAL),
    ],
)  # fmt: skip
def test_the_handshake_demands_a_certificate_where_no_path_goes_without(
    folder: Path, more: str, rest: str, mode: ssl.VerifyMode
) -> None:
    assert context(folder, more, rest).verify_mode is mode


OLD = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("suites", "least", "old"),
    [
        ("", ssl.TLSVersion.TLSv1_2, 6), (f"{OLD}", ssl.TLSVersion.TLSv1_2, 1),
        (f"TLS_AES_128_GCM_SHA256, {OLD}", ssl.TLSVersion.TLSv1_2, 1),
        ("TLS_AES_128_GCM_SHA256", ssl.TLSVersion.TLSv1_3, None),
    ],
)  # fmt: skip
def test_the_suites_that_are_left(folder: Path, suites: str, least: ssl.TLSVersion, old: int | None) -> None:
    made = context(folder, f", cipher_suites: [{suites}]")
    assert made.minimum_version is least
    assert old in {None, sum(one["protocol"] == "TLSv1.2" for one in made.get_ciphers())}


def test_sessions_are_not_resumed_and_the_order_of_suites_is_as_said(folder: Path) -> None:
    ours, theirs = context(folder), context(folder, ", prefer_server_cipher_suites: false")
    assert ours.options & theirs.options & ssl.OP_NO_TICKET
    assert (ours.num_tickets, ours.options & ssl.OP_CIPHER_SERVER_PREFERENCE > 0) == (0, True)
    assert not theirs.options & ssl.OP_CIPHER_SERVER_PREFERENCE


@pytest.mark.parametrize(
    ("token", "good"),
    [("0123456789abcdef", True), ("0123456789abcde", False), ("ä" * 16, False), ("0123456789 abcdef", False)],
)
def test_a_token_is_one_word_of_sixteen_characters(tmp_path: Path, *, token: str, good: bool) -> None:
    (tmp_path / "token").write_text(f"{token}\n", "utf-8")
    file = parse("bearer_token_files: {a: token}", FILE)
    with nullcontext() if good else pytest.raises(WebConfigError, match="not a token"):
        assert settings(file, tmp_path).tokens


def test_what_is_no_authority_is_said(folder: Path) -> None:
    (folder / "empty").write_text("", "utf-8")
    for name, why in (("empty", "not CA certificates in PEM"), ("nowhere", "No such file or directory")):
        with pytest.raises(WebConfigError, match=rf"{name}: {why}$"):
            context(folder, REQUIRED.replace("ours.pem", name))


TLS_OF_A_PORT, ASKING = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Settings(tokens={"a": b"x"})


@each(
    ("before", "after", "lost"),
    [
        (Settings(), Settings(), ""), (Settings(), ASKING, ""), (ASKING, Settings(users={"a": b"x"}), ""),
        (ASKING, Settings(), "authentication"),
        (Settings(certificate=True), Settings(), "client certificates"),
        (Settings(certificate=True), Settings(certificate=True), ""),
        (Settings(tls=TLS_OF_A_PORT), Settings(), "TLS"),
        (Settings(tls=TLS_OF_A_PORT), Settings(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)), ""),
        (Settings(), Settings(tls=TLS_OF_A_PORT), ""), (Settings(), Settings(certificate=True), ""),
    ],
)  # fmt: skip
def test_the_protection_that_other_settings_would_lose(before: Settings, after: Settings, lost: str) -> None:
    assert before.loses(after) == lost


def test_everything_that_can_be_said() -> None:
    file = parse(
        f"""
        tls_server_config:
          cert_file: tls.crt
          key_file: tls.key
          client_auth_type: RequireAndVerifyClientCert
          client_ca_file: ca.crt
          client_allowed_sans: [prometheus.monitoring.svc]
          min_version: TLS13
          max_version: TLS13
          cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
          prefer_server_cipher_suites: false
        http_server_config:
          http2: false
          headers:
            X-Frame-Options: deny
            Strict-Transport-Security: ""
        basic_auth_users:
          prometheus: {HASH}
        bearer_tokens:
          grafana: sha256:{"0f" * 32}
        bearer_token_files:
          other: token
        auth_excluded_paths: [/livez]
        """,
        FILE,
    )
    tls = file.tls_server_config
    assert tls is not None
    assert (tls.requires, tls.verifies, tls.client_allowed_sans) == (
        True,
        True,
        ("prometheus.monitoring.svc",),
    )
    assert file.http_server_config.headers.pairs() == ((b"x-frame-options", b"deny"),)
    assert (file.basic_auth_users, file.auth_excluded_paths) == ({"prometheus": HASH}, ("/livez",))


@pytest.mark.parametrize("text", ["", "# nothing\n", "basic_auth_users:\ntls_server_config:\n", "{}"])
def test_nothing_said_is_plain_http_for_everybody(text: str) -> None:
    file = parse(text, FILE)
    assert (file.tls_server_config, file.basic_auth_users) == (None, {})
    assert file.auth_excluded_paths == ("/livez", "/readyz")


@each(
    ("text", "told"),
    [
        ("tls_server_confg: {}", "unknown key 'tls_server_confg'"),
        (TLS + "  cert: x", "unknown key 'tls_server_config.cert'"),
        (TLS + "  curve_preferences: [X25519]", "unknown key 'tls_server_config.curve_preferences'"),
        ("rate_limit: {burst: 1}", "unknown key 'rate_limit'"),
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: Field required"),
        ("tls_server_config: {cert_file: '', key_file: b}", "tls_server_config.cert_file"),
        (TLS + "  min_version: TLS11", "tls_server_config.min_version: Input should be 'TLS12' or 'TLS13'"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12", "min_version is above max_version"),
        (TLS + "  client_auth_type: RequireAnyClientCert", "without verifying them"),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert", "belong together"),
        (TLS + "  client_ca_file: ca.crt", "belong together"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: a\n  client_allowed_sans: [b]",
         "client_allowed_sans needs"),
        (TLS + "  prefer_server_cipher_suites: 'yes'", "prefer_server_cipher_suites"),
        ("http_server_config: {http2: true}", "only HTTP/1.1"),
        ("http_server_config: {headers: {X-Other: a}}", "unknown key 'http_server_config.headers.X-Other'"),
        ("http_server_config: {headers: {X-Frame-Options: ALLOWALL}}", "X-Frame-Options"),
        ('http_server_config: {headers: {X-XSS-Protection: "1\\r\\nA: b"}}', "X-XSS-Protection"),
        ("basic_auth_users: {a: secret}", "basic_auth_users.a: is not a bcrypt hash"),
        (f"basic_auth_users: {{a: {HASH.replace('$10$', '$15$')}}}", "cost of 4 to 14"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "basic_auth_users.a:b"),
        (f"basic_auth_users: {{1: {HASH}}}\nbearer_tokens: {{2: 2000-01-01}}", "dates have no meaning"),
        ("basic_auth_users: [a]", "basic_auth_users"),
        ("bearer_tokens: {a: secret}", "is not sha256:"),
        ("auth_excluded_paths: [livez]", "auth_excluded_paths.0"),
        ("a: 1\na: 2", "line 2: key 'a' is given twice"),
        (f"basic_auth_users:\n  a: {HASH}\n  a: {HASH}", "line 3: key 'a' is given twice"),
        ("a: [b, {c: 1, c: 2}]", "line 1: key 'c' is given twice"),
        ("[", "line 1"),
        ("a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: &a [*a]", "not YAML"),
        ("{[a]: b}", "line 1"),
        ("word", "the file"),
        ("- a", "the file"),
        ("\x00", "not YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(text: str, told: str) -> None:
    assert told in refused(text)


@given(st.text("0123456789!#%~äöü", min_size=12, max_size=40))
def test_no_message_repeats_what_may_be_a_secret(secret: str) -> None:
    for file in (
        {"basic_auth_users": {"prometheus": secret}},
        {"bearer_tokens": {"prometheus": secret}},
        {"bearer_tokens": {"prometheus": f"sha256:{secret}"}},
        {"tls_server_config": secret},
        {"basic_auth_users": [secret]},
    ):
        assert secret not in refused(yaml.safe_dump(file))
    assert secret not in refused(f"basic_auth_users:\n  a: '{secret}\n  b: [\n")
