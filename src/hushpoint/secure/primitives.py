"""The cryptography that secure sums rest on, and nothing of our own: X25519, HKDF, ChaCha20, AEAD, Ed25519.

The one file that imports ``cryptography``.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from hushpoint.secure.packing import Refused

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ValueError(
        "secure sums need the package cryptography. Install it with: pip install 'hushpoint[secure]'"
    ) from None

KEY = 32  # bytes of every key, public or private, of every seed and of every digest
SIGNATURE = 64
TAG = 16  # bytes by which an envelope is longer than what is in it


def digest(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def derived(secret: bytes, info: bytes) -> bytes:
    """A key for one purpose, which ``info`` names in full: HKDF with SHA-256."""
    return HKDF(algorithm=hashes.SHA256(), length=KEY, salt=None, info=info).derive(secret)


class ExchangeKey:
    """A private key of X25519, read once for many exchanges."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)

    @property
    def public(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes_raw()

    def shared(self, other: bytes) -> bytes:
        """What this key and the private key of ``other`` have in common; ``Refused`` for points of small order."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise Refused("a public key is not one of X25519. Nothing was done with it.") from None


def keystream(key: bytes) -> CipherContext:
    """ChaCha20 from its first block on. Each key is for one stream, so the nonce is 0."""
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()


def sealed(key: bytes, content: bytes, about: bytes) -> bytes:
    """Content in an envelope that only the key opens. Each key is for one envelope, so the nonce is 0."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, about)


def opened(key: bytes, envelope: bytes, about: bytes) -> bytes:
    """What is in an envelope; ``Refused`` if a bit of it, or of what it is about, was changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), envelope, about)
    except InvalidTag:
        raise Refused("an envelope was changed, or is meant for another place.") from None


def signing_public(secret: bytes) -> bytes:
    """The public half of a signing key."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def signature(secret: bytes, statement: bytes) -> bytes:
    """An Ed25519 signature."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(statement)


def is_signed(public: bytes, statement: bytes, by: bytes) -> bool:
    """Whether ``by`` is the signature of a statement."""
    try:
        _verifier(public).verify(by, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _verifier(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
