"""Keys and certificates of a federation, made offline: who may join, who may ask, and what travels stays unread."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hushpoint._checks import require_count

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError:
    raise ValueError(
        "keys need the package cryptography. Install it with: pip install 'hushpoint[federated]'"
    ) from None

_BACKDATED = timedelta(hours=1)  # clocks of sites may run behind


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key to sign with: P-384, the curve that Flower uses for its nodes."""
    return ec.generate_private_key(ec.SECP384R1())


def save_private(path: Path, key: ec.EllipticCurvePrivateKey, *, pem: bool = False) -> None:
    """Write a private key that only its owner may read; an existing one is never replaced."""
    form = PrivateFormat.PKCS8 if pem else PrivateFormat.OpenSSH
    _write(path, key.private_bytes(Encoding.PEM, form, NoEncryption()), secret=True)


def save_public(path: Path, key: ec.EllipticCurvePublicKey) -> None:
    """Write a public key in the format of OpenSSH, which Flower reads."""
    _write(path, public_text(key).encode())


def public_text(key: ec.EllipticCurvePublicKey) -> str:
    """A public key as ``save_public`` writes it."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + "\n"


def load_private(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key in a file."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise _no_key(path) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _no_key(path)
    return key


def load_public(path: Path) -> ec.EllipticCurvePublicKey:
    """The public key in a file."""
    try:
        return read_public(path.read_bytes(), path)
    except OSError:
        raise _no_key(path) from None


def read_public(content: bytes, path: Path) -> ec.EllipticCurvePublicKey:
    """A public key as ``save_public`` writes it; ``path`` is where it was found."""
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise _no_key(path) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise _no_key(path)
    return key


def sign(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """The signature of some bytes."""
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def verify(key: ec.EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    """Whether the signature is the key owner's on these bytes."""
    try:
        key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def make_certificates(folder: Path, hosts: Sequence[str], days: int = 365) -> None:
    """A certificate authority of the federation's own and a certificate of its server, for the names sites call it by.

    Writes ``ca.crt`` (sites need it), ``server.crt`` and ``server.key``. The authority's key is not kept: it signs this
    one certificate, so nobody can make another that the sites would accept.
    """
    require_count("days", days)
    if not hosts:
        raise ValueError("hosts is empty. Name the addresses that sites call the server by.")
    authority, server = new_key(), new_key()
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "Hushpoint federation")])
    root = (
        _certificate(name, name, authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    own = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "Hushpoint server")])
    leaf = (
        _certificate(own, name, server.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    save_private(folder / "server.key", server, pem=True)
    _write(folder / "server.crt", leaf.public_bytes(Encoding.PEM))
    _write(folder / "ca.crt", root.public_bytes(Encoding.PEM))


def hosts_of(path: Path) -> set[str]:
    """The names and addresses that a certificate is for."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def validity(path: Path) -> tuple[datetime, datetime]:
    """From when to when the certificate in a file is valid."""
    found = _load_certificate(path)
    return found.not_valid_before_utc, found.not_valid_after_utc


def certificate_fault(folder: Path, host: str) -> str:
    """Why the server's certificate does not fit its key, its authority or its name; empty where it does."""
    leaf, root = _load_certificate(folder / "server.crt"), _load_certificate(folder / "ca.crt")
    if leaf.public_key() != _load_pem_private(folder / "server.key").public_key():
        return "server.crt is not of server.key"
    try:
        leaf.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        return "ca.crt did not sign server.crt"
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return "" if _host(host) in list(names) else f"server.crt is not for {host!r}"


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise ValueError(f"{str(path)!r} holds no certificate. Make it: hushpoint federated keys") from None


def _load_pem_private(path: Path) -> Any:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(f"{str(path)!r} holds no private key. Make it: hushpoint federated keys") from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _BACKDATED + timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    except FileExistsError:
        raise ValueError(f"{str(path)!r} exists. Move it away first: keys are never replaced.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _no_key(path: Path) -> ValueError:
    return ValueError(
        f"{str(path)!r} holds no key of an elliptic curve in the format of OpenSSH. "
        "Make one with: hushpoint federated keys"
    )
