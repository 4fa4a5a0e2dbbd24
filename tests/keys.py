"""Keys that sign, made for a test."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def make_key(folder: Path, name: str, key: Any = None, password: str = "") -> Path:
    """Write a private key, by default of P-256, and its public key with ``.public.pem`` at the end."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    locked: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".public.pem").write_bytes(public)
    return path
