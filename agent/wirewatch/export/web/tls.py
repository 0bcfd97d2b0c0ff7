"""From the TLS section to what the ssl module takes."""

import ssl
from collections.abc import Collection
from pathlib import Path

from wirewatch.export.web.file import TlsSection, WebConfigError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Of TLS 1.2, those with forward secrecy and authenticated encryption, by the names that the file uses."""
_ALWAYS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
"""Those of TLS 1.3, which are never off."""


def context(section: TlsSection, folder: Path, *, at_the_handshake: bool) -> ssl.SSLContext:
    """What a new connection begins with.

    Args:
        section: what is wanted.
        folder: where paths that are not absolute begin.
        at_the_handshake: whether a missing client certificate that is required ends the handshake; else the
            handshake only verifies one that is given, and whoever asks must be looked at afterwards.

    Raises:
        WebConfigError: a file that cannot be read or is not what it should be, an unknown cipher suite.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = _VERSIONS[section.min_version]
    made.maximum_version = _VERSIONS[section.max_version]
    _choose_suites(made, section.cipher_suites)
    if section.prefer_server_cipher_suites:
        made.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    # No resumption: it would let a certificate in that has expired or lost its authority meanwhile.
    made.options |= ssl.OP_NO_TICKET
    made.num_tickets = 0
    _load_chain(made, folder / section.cert_file, folder / section.key_file)
    if section.verifies:
        _load_authorities(made, folder / section.client_ca_file)
        required = section.requires and at_the_handshake
        made.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return made


def _choose_suites(made: ssl.SSLContext, names: Collection[str]) -> None:
    """Those named, or all that are good; a list with none of TLS 1.2 leaves TLS 1.3 alone."""
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
        # A password is never asked for: nobody sits at a daemon's terminal.
        made.load_cert_chain(certificate, key, password="")  # nosec B106
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise WebConfigError(f"{key}: not the key of the certificate in {certificate}") from error
        told = error.reason or "no certificate and its key, both PEM and the key without a password"
        raise WebConfigError(f"{certificate}, {key}: {told}") from error


def _load_authorities(made: ssl.SSLContext, path: Path) -> None:
    readable(path)
    try:
        made.load_verify_locations(path)
    except ssl.SSLError as error:
        raise WebConfigError(f"{path}: {error.reason or 'no certificates of authorities in PEM'}") from error


def readable(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        WebConfigError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise WebConfigError(f"{path}: {error.strerror or error}") from error
