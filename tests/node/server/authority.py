"""Certificates for tests, made on the spot: good, expired, of a stranger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
HERE = ("localhost", "127.0.0.1")
SIGNS = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False,
    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
    decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path
    serial: int


class Authority:
    """One that signs; its own certificate is at `file`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        public = self._key.public_key()
        made = (
            self._build(self._name, public, DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def pair(self, name: str, names: Sequence[str] = HERE, *, valid: timedelta = DAY) -> Pair:
        """A certificate for names and addresses; expired where `valid` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = (
            self._build(subject, key.public_key(), valid)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(text) for text in names]), critical=False
            )
            .add_extension(usages, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key", made.serial_number)
        pair.certificate.write_bytes(_pem(made))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    @staticmethod
    def lock(pair: Pair, place: Path) -> None:
        """The key of a pair again, under a password."""
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        place.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"password"),
            )
        )

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 7 * DAY)
            .not_valid_after(now + valid)
        )


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
