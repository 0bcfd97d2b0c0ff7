"""The web configuration: a file in the format of Prometheus' exporter-toolkit, as the settings of a port."""

import hashlib
import json
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from wirewatch.core.types import Unusable

OPEN_PATHS = ("/livez", "/readyz")
"""Paths without authentication unless the file says otherwise: the kubelet sends no password."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a port.

    `tls` is None for plain HTTP. `certificate`: whether a client certificate is required, which the guard
    demands outside `excluded`; `names`: its allowed names, empty for any. `users` with their bcrypt hashes,
    `tokens` with their SHA-256; with neither no authentication is required.
    """

    tls: ssl.SSLContext | None = None
    certificate: bool = False
    names: frozenset[str] = frozenset()
    users: Mapping[str, bytes] = field(default_factory=dict)
    tokens: Mapping[str, bytes] = field(default_factory=dict)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    excluded: frozenset[str] = frozenset(OPEN_PATHS)

    @property
    def asks(self) -> bool:
        """Tell whether a user or a token is required."""
        return bool(self.users or self.tokens)

    def loses(self, after: "Settings") -> str:
        """Say which protection `after` would lose; "" for none."""
        if self.tls and not after.tls:
            return "TLS"
        if self.certificate and not after.certificate:
            return "client certificates"
        return "authentication" if self.asks and not after.asks else ""

    def admits(self, certificate: Mapping[str, Any]) -> bool:
        """Tell whether a verified certificate, as `getpeercert()` gives it, has an allowed name."""
        names = certificate.get("subjectAltName", ())
        return not self.names or any(value in self.names for _kind, value in names)


Version = Literal["TLS12", "TLS13"]
ClientAuth = Literal["", "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
File = Annotated[str, Field(min_length=1)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$")]
User = Annotated[str, StringConstraints(pattern=r"^[^:\x00-\x1f]+$")]
# The two digits are the cost: each step doubles it, and 15 is two seconds of a processor for a wrong guess.
BcryptHash = Annotated[
    str, StringConstraints(pattern=r"^\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}$", strip_whitespace=True)
]
TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
UrlPath = Annotated[str, StringConstraints(pattern=r"^/[^?#\s]*$")]
_MEANT = {
    "basic_auth_users": "is not a bcrypt hash with a cost of 4 to 14",
    "bearer_tokens": "is not sha256: with 64 hexadecimal digits",
    "http_server_config.http2": "this server speaks only HTTP/1.1: leave it out or set it to false",
    "tls_server_config.client_auth_type": "is not one of NoClientCert, VerifyClientCertIfGiven, "
    "RequireAndVerifyClientCert (the others accept certificates without verifying them)",
}


class WebConfigError(Unusable):
    """A web configuration that cannot be used; the text is one line for the user."""


class _WebSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class TlsSection(_WebSection):
    """TLS of the port. Files are PEM; a relative path begins at the folder of the web configuration."""

    cert_file: File
    key_file: File
    client_auth_type: ClientAuth = ""
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    @property
    def verifies(self) -> bool:
        return self.client_auth_type not in {"", "NoClientCert"}

    @property
    def requires(self) -> bool:
        return self.client_auth_type == "RequireAndVerifyClientCert"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.verifies != bool(self.client_ca_file):
            raise ValueError("client_ca_file and a client_auth_type that verifies belong together")
        if self.client_allowed_sans and not self.requires:
            raise ValueError("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")
        if self.min_version > self.max_version:
            raise ValueError("min_version is above max_version")
        return self


class Headers(_WebSection):
    """Headers that are added to every answer; "" for none."""

    csp: HeaderValue = Field(default="", alias="Content-Security-Policy")
    frame: Literal["", "deny", "sameorigin"] = Field(default="", alias="X-Frame-Options")
    sniff: Literal["", "nosniff"] = Field(default="", alias="X-Content-Type-Options")
    xss: HeaderValue = Field(default="", alias="X-XSS-Protection")
    sts: HeaderValue = Field(default="", alias="Strict-Transport-Security")

    def pairs(self) -> tuple[tuple[bytes, bytes], ...]:
        given = self.model_dump(by_alias=True).items()
        return tuple((name.lower().encode(), value.encode()) for name, value in given if value)


class HttpSection(_WebSection):
    """HTTP of the port."""

    http2: Literal[False] = False
    headers: Headers = Headers()


class WebFile(_WebSection):
    """The whole file."""

    tls_server_config: TlsSection | None = None
    http_server_config: HttpSection = HttpSection()
    basic_auth_users: dict[User, BcryptHash] = {}
    bearer_tokens: dict[str, TokenHash] = {}
    bearer_token_files: dict[str, File] = {}
    auth_excluded_paths: tuple[UrlPath, ...] = OPEN_PATHS


SHORTEST_TOKEN = 16
"""Characters of a token: its hash is fast, so the token must not be guessable."""
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Suites of TLS 1.2 with forward secrecy and authenticated encryption, by their names in the file."""
_ALWAYS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
"""Suites of TLS 1.3, which are never off."""


def parse(text: str, path: Path) -> WebFile:
    """Return the file as a model; WebConfigError for no YAML, a key twice or unknown, a wrong value."""
    try:
        twice = _duplicate_key(yaml.compose(text, yaml.SafeLoader))
        data = _without_nulls(yaml.safe_load(text)) or {}
    except yaml.MarkedYAMLError as error:
        line = getattr(error.problem_mark, "line", -1) + 1
        raise WebConfigError(f"{path}: line {line}: {error.problem or 'not YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WebConfigError(f"{path}: not YAML") from error
    if twice:
        raise WebConfigError(f"{path}: {twice}")
    try:
        # By way of JSON, where strict models take lists for tuples.
        return WebFile.model_validate_json(json.dumps(data))
    except TypeError as error:
        raise WebConfigError(f"{path}: keys must be strings, and dates have no meaning here") from error
    except ValidationError as error:
        raise WebConfigError(f"{path}: {_first_error(error)}") from error


def named_files(file: WebFile, folder: Path) -> tuple[Path, ...]:
    """The files that a web configuration names."""
    tls = file.tls_server_config
    named = [] if tls is None else [tls.cert_file, tls.key_file, tls.client_ca_file]
    return tuple(folder / name for name in (*named, *file.bearer_token_files.values()) if name)


def settings(file: WebFile, folder: Path) -> Settings:
    """Return the settings of a file; raises WebConfigError where a file that it names cannot be used."""
    made = Settings(
        users={name: hashed.encode() for name, hashed in file.basic_auth_users.items()},
        tokens=_tokens(file, folder),
        headers=file.http_server_config.headers.pairs(),
        excluded=frozenset(file.auth_excluded_paths),
    )
    section = file.tls_server_config
    if section is None:
        return made
    tls = context(section, folder, at_the_handshake=not made.excluded)
    return replace(made, tls=tls, certificate=section.requires, names=frozenset(section.client_allowed_sans))


def context(section: TlsSection, folder: Path, *, at_the_handshake: bool) -> ssl.SSLContext:
    """Return the TLS context for new connections; relative paths begin at `folder`.

    `at_the_handshake`: the handshake fails without a required client certificate. Otherwise the handshake
    only verifies a certificate that the client gives, and each request must be checked. Raises
    WebConfigError: a wrong file or cipher suite.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = _VERSIONS[section.min_version]
    made.maximum_version = _VERSIONS[section.max_version]
    _choose_suites(made, section.cipher_suites)
    if not section.prefer_server_cipher_suites:
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    # No resumption: it would accept a certificate that has expired or lost its authority meanwhile.
    made.options |= ssl.OP_NO_TICKET
    made.num_tickets = 0
    _load_chain(made, folder / section.cert_file, folder / section.key_file)
    if section.verifies:
        authorities = folder / section.client_ca_file
        readable(authorities)
        try:
            made.load_verify_locations(authorities)
        except ssl.SSLError as error:
            raise WebConfigError(f"{authorities}: not CA certificates in PEM") from error
        required = section.requires and at_the_handshake
        made.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return made


def readable(path: Path) -> bytes:
    """Return a file's bytes; raises WebConfigError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WebConfigError(f"{path}: {error.strerror or error}") from error


def _without_nulls(value: Any) -> Any:
    """A key without a value is as if absent, as in Prometheus' own reader of the format."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _duplicate_key(node: yaml.Node | None) -> str:
    """Return the first key that a mapping repeats, in words; YAML itself keeps the last."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            # A key may itself be a list, which is refused later.
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                return f"line {key.start_mark.line + 1}: key {name!r} is given twice"
            seen.add(name)
            if found := _duplicate_key(value):
                return found
    elif isinstance(node, yaml.SequenceNode):
        return next((found for part in node.value if (found := _duplicate_key(part))), "")
    return ""


def _first_error(error: ValidationError) -> str:
    """The first error in one line, without the value that was given."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}"
    for section, meant in _MEANT.items():
        if f"{place}.".startswith(f"{section}."):
            return f"{place}: {meant}"
    return f"{place or 'the file'}: {first['msg'].removeprefix('Value error, ')}"


def _tokens(file: WebFile, folder: Path) -> dict[str, bytes]:
    tokens = {name: bytes.fromhex(text.partition(":")[2]) for name, text in file.bearer_tokens.items()}
    for name, place in file.bearer_token_files.items():
        token = readable(folder / place).strip()
        if len(token) < SHORTEST_TOKEN or not token.isascii() or any(byte <= ord(" ") for byte in token):
            wanted = f"at least {SHORTEST_TOKEN} characters in one word"
            raise WebConfigError(f"{folder / place}: not a token: {wanted}")
        if name in tokens:
            raise WebConfigError(f"bearer_token_files.{name}: is in bearer_tokens too")
        tokens[name] = hashlib.sha256(token).digest()
    return tokens


def _choose_suites(made: ssl.SSLContext, names: Collection[str]) -> None:
    """Enable the named suites, or all strong suites; without a suite of TLS 1.2, only TLS 1.3 is left."""
    wrong = [name for name in names if name not in _SUITES and name not in _ALWAYS]
    if wrong:
        raise WebConfigError(f"tls_server_config.cipher_suites: {wrong[0]!r} is unknown or too weak")
    chosen = [_SUITES[name] for name in names if name in _SUITES]
    if chosen or not names:
        made.set_ciphers(":".join(chosen or _SUITES.values()))
    elif made.maximum_version is ssl.TLSVersion.TLSv1_2:
        raise WebConfigError("tls_server_config.cipher_suites: none of them is for TLS 1.2")
    else:
        made.minimum_version = ssl.TLSVersion.TLSv1_3


def _load_chain(made: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        readable(path)
    try:
        # Never ask for a password: a daemon has no terminal.
        made.load_cert_chain(certificate, key, password="")  # nosec B106
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise WebConfigError(f"{key}: not the key of the certificate in {certificate}") from error
        why = error.reason or "not a certificate and its key, both PEM, the key without a password"
        raise WebConfigError(f"{certificate}, {key}: {why}") from error
