"""What holds at the port."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPEN = ("/livez", "/readyz")
"""Paths that need no authentication unless the file says otherwise: the kubelet has no password to give."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one state of the files says.

    `tls` is None for plain HTTP. `certificate`: whether a client certificate is wanted, which the guard then
    asks for outside `excluded`; `names`: of which it must have one, where there are any. `users` by their
    bcrypt hashes, `tokens` by SHA-256; with neither nobody is asked who he is.
    """

    tls: ssl.SSLContext | None = None
    certificate: bool = False
    names: frozenset[str] = frozenset()
    users: Mapping[str, bytes] = field(default_factory=dict)
    tokens: Mapping[str, bytes] = field(default_factory=dict)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    excluded: frozenset[str] = frozenset(OPEN)

    @property
    def asks(self) -> bool:
        """Whether users or tokens are asked for."""
        return bool(self.users or self.tokens)

    def loses(self, after: "Settings") -> str:
        """What of these would hold no more, in words; "" for nothing."""
        if self.tls and not after.tls:
            return "TLS"
        if self.certificate and not after.certificate:
            return "client certificates"
        return "authentication" if self.asks and not after.asks else ""

    def admits(self, certificate: Mapping[str, Any]) -> bool:
        """Whether a verified certificate, as `getpeercert()` tells it, has a name that is allowed."""
        names = certificate.get("subjectAltName", ())
        return not self.names or any(value in self.names for _kind, value in names)
