"""The certificates of our webhook, and when they change. Pure but for the keys, which are random.

Each certificate is signed by an authority of its own, whose key is thrown away at once: there is
nothing to steal that could sign another one. A change has three steps, so that at no moment a
replica serves what the API server does not trust:

    staged      the next pair is made, and its authority is announced beside the present one
    promoted    a while after that was announced, the next pair is served; both stay trusted
    forgotten   with the next change the old authority goes

Replicas that look at different moments serve different pairs for a while, and both are trusted.
"""

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SKEW: Final = timedelta(minutes=5)
_LONGEST_SETTLING: Final = 60.0


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, and the authority that vouches for it; all PEM."""

    certificate: str
    key: str = field(repr=False)
    authority: str

    @property
    def expires(self) -> float:
        """When the certificate ends, in seconds since the epoch."""
        return _certificate(self.certificate).not_valid_after_utc.timestamp()

    @property
    def names(self) -> frozenset[str]:
        """The hosts that the certificate is for."""
        found = _certificate(self.certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        addresses = found.value.get_values_for_type(x509.IPAddress)
        return frozenset((*found.value.get_values_for_type(x509.DNSName), *map(str, addresses)))


@dataclass(frozen=True)
class Keyring:
    """What is served now, what is served next, and whom to trust meanwhile."""

    serving: Pair
    staged: Pair | None = None
    staged_at: float = 0.0
    former: str = ""

    @property
    def bundle(self) -> str:
        """All authorities that may be met, as PEM."""
        staged = self.staged.authority if self.staged else ""
        return "".join(sorted({self.serving.authority, staged, self.former}))

    def data(self) -> dict[str, str]:
        """Return the keys of the Secret that keeps it."""
        kept = {
            "tls.crt": self.serving.certificate,
            "tls.key": self.serving.key,
            "ca.crt": self.serving.authority,
            "former-ca.crt": self.former,
        }
        if self.staged:
            kept |= {
                "next.crt": self.staged.certificate,
                "next.key": self.staged.key,
                "next-ca.crt": self.staged.authority,
                "staged-at": f"{self.staged_at:.0f}",
            }
        return {key: base64.b64encode(text.encode()).decode() for key, text in kept.items()}


def keyring_in(data: Mapping[str, str]) -> Keyring | None:
    """Read the keys of a Secret; None for what nobody could use."""
    try:
        text = {key: base64.b64decode(value).decode() for key, value in data.items()}
        staged = (
            _usable(Pair(text["next.crt"], text["next.key"], text["next-ca.crt"]))
            if "next.crt" in text
            else None
        )
        return Keyring(
            _usable(Pair(text["tls.crt"], text["tls.key"], text["ca.crt"])),
            staged,
            float(text.get("staged-at", 0)),
            text.get("former-ca.crt", ""),
        )
    except (KeyError, ValueError, InvalidSignature, x509.ExtensionNotFound):
        return None


def settling(lifetime: float) -> float:
    """Return how many seconds an authority is known before its certificate is served."""
    return min(_LONGEST_SETTLING, lifetime / 10)


def decide(
    keyring: Keyring | None,
    names: Sequence[str],
    *,
    announced: bool,
    now: float,
    lifetime: float,
) -> Keyring:
    """Return the keyring as it shall be now; the same one if nothing is to be done.

    `announced` says whether the API server was told to trust all of its bundle.
    """
    if keyring is None or max(keyring.serving.expires, _end_of(keyring.staged)) <= now:
        return Keyring(issue(names, now, lifetime))
    if keyring.staged is not None:
        settled = announced and now - keyring.staged_at >= settling(lifetime)
        if settled or keyring.serving.expires <= now:
            return Keyring(keyring.staged, former=keyring.serving.authority)
        return keyring
    worn = keyring.serving.expires - now <= lifetime / 3
    if worn or not keyring.serving.names >= set(names):
        return replace(
            keyring, staged=issue(names, now, lifetime), staged_at=float(int(now)), former=""
        )
    return keyring


def issue(names: Sequence[str], now: float, lifetime: float) -> Pair:
    """Make a pair for these hosts, vouched for by an authority that can never do so again."""
    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = (
        _begun("namedqueue webhook authority", now, lifetime)
        .issuer_name(_name("namedqueue webhook authority"))
        .public_key(signer.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    certificate = (
        _begun("namedqueue webhook", now, lifetime)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([_host(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(_pem(certificate), private.decode(), _pem(authority))


def _end_of(pair: Pair | None) -> float:
    return pair.expires if pair else 0.0


def _begun(subject: str, now: float, lifetime: float) -> x509.CertificateBuilder:
    moment = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _SKEW)
        .not_valid_after(moment + timedelta(seconds=lifetime))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usable(pair: Pair) -> Pair:
    """Return a pair whose parts can be read and belong together, or raise a ValueError."""
    key = load_pem_private_key(pair.key.encode(), password=None)
    if key.public_key() != _certificate(pair.certificate).public_key():
        raise ValueError("the key is not the certificate's")
    _certificate(pair.certificate).verify_directly_issued_by(_certificate(pair.authority))
    return pair


def _certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
