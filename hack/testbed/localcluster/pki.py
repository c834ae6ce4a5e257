"""The certificates of one cluster, as kubeadm would make them.

Three authorities, each trusted for one thing: clients and servers of the cluster, clients of etcd,
and the front proxy through which the API server speaks to aggregated APIs. Nothing of a cluster
is reachable without a certificate from the right one.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=365)
_PAST = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority that signs into its own folder."""

    folder: Path
    name: str
    _key: ec.EllipticCurvePrivateKey
    _certificate: x509.Certificate

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def sign(
        self, file: str, common_name: str, *, group: str | None = None, hosts: Sequence[str] = ()
    ) -> Pair:
        """Make a certificate for a client, and for a server too if it has hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(_name(common_name, group), self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        pair = Pair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        _write(pair.certificate, signed.public_bytes(serialization.Encoding.PEM))
        _write(pair.key, private_pem(key))
        return pair


def make_authority(folder: Path, name: str) -> Authority:
    """Make a new authority with `<name>.crt` and `<name>.key` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"namedqueue test bed {name}", None)
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(folder, name, key, certificate)
    _write(authority.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    _write(authority.key, private_pem(key))
    return authority


def open_authority(folder: Path, name: str) -> Authority:
    """Read an authority that `make_authority` made."""
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / name}.key is no elliptic-curve key")
    return Authority(folder, name, key, certificate)


def make_signing_key(folder: Path, name: str) -> Pair:
    """Make the key pair that signs service account tokens; `.pub` is the public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = Pair(folder / f"{name}.pub", folder / f"{name}.key")
    _write(pair.key, private_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(pair.certificate, public)
    return pair


def write_kubeconfig(file: Path, *, cluster: str, server: str, authority: Path, pair: Pair) -> Path:
    """Write a kubeconfig that carries its certificates inside, so it can be copied away."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": _inline(authority)},
            }
        ],
        "users": [
            {
                "name": cluster,
                "user": {
                    "client-certificate-data": _inline(pair.certificate),
                    "client-key-data": _inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "current-context": cluster,
    }
    _write(file, json.dumps(config, indent=2).encode())
    return file


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _PAST)
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str, group: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if group is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _inline(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)
