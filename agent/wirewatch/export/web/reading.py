"""From the web configuration and the files that it names to what holds."""

import hashlib
from dataclasses import replace
from pathlib import Path

from wirewatch.export.web.file import TlsSection, WebConfigError, WebFile
from wirewatch.export.web.settings import Settings
from wirewatch.export.web.tls import context, readable

SHORTEST = 16
"""Characters of a token: its hash is a fast one, so it must not be guessable."""


def named_files(file: WebFile, folder: Path) -> tuple[Path, ...]:
    """The files that a web configuration names."""
    tls = file.tls_server_config
    named = [] if tls is None else [tls.cert_file, tls.key_file, tls.client_ca_file]
    return tuple(folder / name for name in (*named, *file.bearer_token_files.values()) if name)


def settings(file: WebFile, folder: Path) -> Settings:
    """The files' content as what holds.

    Raises:
        WebConfigError: a file that is named cannot be used.
    """
    excluded = frozenset(file.auth_excluded_paths)
    made = Settings(
        users={name: hashed.encode() for name, hashed in file.basic_auth_users.items()},
        tokens=_tokens(file, folder),
        headers=file.http_server_config.headers.pairs(),
        excluded=excluded,
    )
    section = file.tls_server_config
    return made if section is None else _with_tls(made, section, folder)


def _with_tls(made: Settings, section: TlsSection, folder: Path) -> Settings:
    tls = context(section, folder, at_the_handshake=not made.excluded)
    names = frozenset(section.client_allowed_sans)
    return replace(made, tls=tls, certificate=section.requires, names=names)


def _tokens(file: WebFile, folder: Path) -> dict[str, bytes]:
    tokens = {name: bytes.fromhex(text.partition(":")[2]) for name, text in file.bearer_tokens.items()}
    for name, place in file.bearer_token_files.items():
        token = readable(folder / place).strip()
        if len(token) < SHORTEST or not token.isascii() or any(byte <= ord(" ") for byte in token):
            raise WebConfigError(f"{folder / place}: no token of at least {SHORTEST} characters in one word")
        if name in tokens:
            raise WebConfigError(f"bearer_token_files.{name}: stands in bearer_tokens too")
        tokens[name] = hashlib.sha256(token).digest()
    return tokens
