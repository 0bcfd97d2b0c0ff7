"""The web configuration file: the format of Prometheus' exporter-toolkit, read strictly.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. Beside it:
`bearer_tokens`, `bearer_token_files`, `auth_excluded_paths`. No message repeats a value: somebody will write
a password where its hash belongs.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from wirewatch.core.types import Unusable
from wirewatch.export.web.settings import OPEN

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
    "basic_auth_users": "is no bcrypt hash with a cost of 4 to 14",
    "bearer_tokens": "is no sha256: with 64 hexadecimal digits",
    "http_server_config.http2": "this server speaks HTTP/1.1 alone: leave it out or say false",
    "tls_server_config.client_auth_type": "is none of NoClientCert, VerifyClientCertIfGiven, "
    "RequireAndVerifyClientCert (the others take certificates that nobody verifies)",
}


class WebConfigError(Unusable):
    """A web configuration that cannot be used; the text is one line for the user."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class TlsSection(_Section):
    """What the port speaks. Files are PEM; a path that is not absolute begins at the file's own folder."""

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


class Headers(_Section):
    """Headers added to every answer; "" for none."""

    csp: HeaderValue = Field(default="", alias="Content-Security-Policy")
    frame: Literal["", "deny", "sameorigin"] = Field(default="", alias="X-Frame-Options")
    sniff: Literal["", "nosniff"] = Field(default="", alias="X-Content-Type-Options")
    xss: HeaderValue = Field(default="", alias="X-XSS-Protection")
    sts: HeaderValue = Field(default="", alias="Strict-Transport-Security")

    def pairs(self) -> tuple[tuple[bytes, bytes], ...]:
        given = self.model_dump(by_alias=True).items()
        return tuple((name.lower().encode(), value.encode()) for name, value in given if value)


class HttpSection(_Section):
    http2: Literal[False] = False
    headers: Headers = Headers()


class WebFile(_Section):
    """The whole file."""

    tls_server_config: TlsSection | None = None
    http_server_config: HttpSection = HttpSection()
    basic_auth_users: dict[User, BcryptHash] = {}
    bearer_tokens: dict[str, TokenHash] = {}
    bearer_token_files: dict[str, File] = {}
    auth_excluded_paths: tuple[UrlPath, ...] = OPEN


def parse(text: str, path: Path) -> WebFile:
    """The file's text as a model.

    Raises:
        WebConfigError: not YAML, a key twice, an unknown key, a value that cannot be meant.
    """
    try:
        twice = _twice(yaml.compose(text, yaml.SafeLoader))
        data = _without_nulls(yaml.safe_load(text)) or {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise WebConfigError(f"{path}: line {line}: {error.problem or 'no YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WebConfigError(f"{path}: no YAML") from error
    if twice:
        raise WebConfigError(f"{path}: {twice}")
    try:
        # By way of JSON, where strict models take lists for tuples.
        return WebFile.model_validate_json(json.dumps(data))
    except TypeError as error:
        raise WebConfigError(f"{path}: keys are words, and dates mean nothing here") from error
    except ValidationError as error:
        raise WebConfigError(f"{path}: {_first(error)}") from error


def _without_nulls(value: Any) -> Any:
    """As in the format's own reader, a key without a value is a key that is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _twice(node: yaml.Node | None) -> str:
    """The first key that stands twice in one mapping, in words; YAML itself lets the last one win."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            # A key may itself be a list, which is refused later.
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen:
                return f"line {key.start_mark.line + 1}: key {name!r} stands there twice"
            seen.add(name)
            if told := _twice(value):
                return told
    elif isinstance(node, yaml.SequenceNode):
        return next((told for part in node.value if (told := _twice(part))), "")
    return ""


def _first(error: ValidationError) -> str:
    """The first complaint in one line, without what was given."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}"
    for section, meant in _MEANT.items():
        if f"{place}.".startswith(f"{section}."):
            return f"{place}: {meant}"
    return f"{place or 'the file'}: {first['msg'].removeprefix('Value error, ')}"
