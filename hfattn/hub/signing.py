"""Sign the files of a published model with OpenSSF model-signing, and check such a signature.

``model.sig`` is a Sigstore bundle. Its in-toto statement lists the SHA-256 of each published file, the manifest and the
card included, so a program that knows model-signing can check it without hfattn.
"""

import hashlib
import json
import os
import shutil
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..extras import require
from .manifest import SIGNATURE, STATEMENTS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

PASSWORD = "HFATTN_SIGN_PASSWORD"  # find_secret searches the published files for its value, as its name says what it is
# What the Hub, git, a download and those who trained the model again write beside the signed files. Nothing of it is
# read when a model is loaded.
UNSIGNED = (".cache", ".git", ".gitattributes", STATEMENTS)
_PREDICATE = "https://model_signing/signature/v1.0"
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_MAKE = "make one with: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem"


def check_key(key: Path, folder: Path | None = None) -> None:
    """Check before any work that a key can sign.

    Args:
        key: file with the private key.
        folder: the folder that will be published, if any.

    Raises:
        UserError: the extra is not installed; or the key is in the folder, cannot be read or decrypted, or is not one
            of the elliptic curves P-256, P-384 and P-521.
    """
    _private_key(key)
    if folder is not None and key.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{key} is a private key in the folder that is published; move it out of {folder}.")


def sign(path: Path, key: Path, signature: Path | None = None) -> None:
    """Write the signature of all files of a folder, or of one file.

    Args:
        path: the folder or the file.
        key: file with the private key.
        signature: file to write; by default, ``model.sig`` in the folder.

    Raises:
        UserError: see ``check_key``.
    """
    _private_key(key)
    from model_signing import hashing, signing

    password: Any = _password(key)  # annotated as text, which cryptography refuses
    hashes = hashing.Config().set_ignored_paths(paths=[SIGNATURE, *UNSIGNED], ignore_git_paths=False)
    signer = signing.Config().set_hashing_config(hashes).use_elliptic_key_signer(private_key=key, password=password)
    signer.sign(path, signature or path / SIGNATURE)


def keep_signature(folder: Path, earlier: Path, key: Path) -> None:
    """Replace the signature of a folder by an earlier one of the same files with the same key, if it is one.

    Two signatures of the same files differ, and an unchanged model shall make no commit.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    with TemporaryDirectory(prefix="hfattn-") as scratch:
        public = Path(scratch) / "public.pem"
        encoded = _private_key(key).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        public.write_bytes(encoded)
        try:
            check_signature(folder, public, earlier)
        except AssertionError:
            return
    shutil.copyfile(earlier, folder / SIGNATURE)


def check_signature(folder: Path, public_key: Path, signature: Path | None = None) -> str:
    """Check that a folder has the files that the owner of a key signed, and no others.

    The files in ``UNSIGNED`` are not compared.

    Args:
        folder: the folder.
        public_key: file with the public key of the signer.
        signature: the signature; by default, ``model.sig`` in the folder.

    Returns:
        Number of files, and the key.

    Raises:
        AssertionError: there is no signature by this key, or a file has changed, was added or is missing.
        UserError: the extra is not installed, or the public key cannot be read.
    """
    fingerprint = _fingerprint(_public_key(public_key))
    signature = signature or folder / SIGNATURE
    assert signature.is_file(), f"there is no {SIGNATURE}: the files are not signed"
    signer, signed = _read(signature)
    assert signer == fingerprint, f"{SIGNATURE} was made with another key than that of {public_key}"
    check_signed(signed, {name: _sha256(folder / name) for name in _names(folder)})
    from cryptography.exceptions import InvalidSignature
    from model_signing import verifying

    config = verifying.Config().use_elliptic_key_verifier(public_key=public_key).set_ignore_unsigned_files(True)
    try:
        config.verify(folder, signature)
    except InvalidSignature:
        raise AssertionError(f"{SIGNATURE} was not made with the key of {public_key}, or was changed") from None
    except ValueError as error:
        raise AssertionError(f"{SIGNATURE} is refused: {' '.join(str(error).split())}") from None
    return f"{len(signed)} files, by the key of {public_key}"


def signed_files(signature: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a signature lists. Whose signature it is, is not checked.

    Raises:
        AssertionError: it is not a signature of files.
    """
    return _read(signature)[1]


def check_signed(signed: Mapping[str, str], files: Mapping[str, str | None]) -> None:
    """Compare the files that a signature lists with others by their SHA-256; raises AssertionError."""
    files = {name: found for name, found in files.items() if name != SIGNATURE and name.split("/")[0] not in UNSIGNED}
    for name in sorted(signed.keys() | files.keys()):
        assert name in files, f"{name} is missing, which was signed"
        assert name in signed, f"{name} was added after the files were signed"
        assert signed[name] == files[name], f"{name} has changed since it was signed"


def _read(signature: Path) -> tuple[str | None, dict[str, str]]:
    """Return the fingerprint of the key that a signature names, and the SHA-256 of the files that it lists."""
    try:
        bundle = json.loads(signature.read_text(encoding="utf-8"))
        statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
        predicate = statement["predicate"]
        serialization = predicate["serialization"]
        kind = statement["predicateType"], serialization["method"], serialization["hash_type"]
        if kind != (_PREDICATE, "files", "sha256"):
            raise ValueError(kind)
        files = {str(each["name"]): str(each["digest"]) for each in predicate["resources"]}
        return bundle["verificationMaterial"].get("publicKey", {}).get("hint"), files
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise AssertionError(f"{SIGNATURE} is not a signature of files by model-signing") from None


def _names(folder: Path) -> list[str]:
    """Return the paths of everything in a folder except folders, hidden or not, relative to it."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return [path.relative_to(folder).as_posix() for path in paths]


def _sha256(path: Path) -> str | None:
    if not path.is_file():  # reading a pipe or a device may never end
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _password(key: Path) -> bytes | None:
    """Return the password of a key from the environment; None if the key is not encrypted."""
    if b"ENCRYPTED" not in key.read_bytes():
        return None
    password = os.environ.get(PASSWORD)
    if not password:
        raise UserError(f"{key} is encrypted; set the environment variable {PASSWORD} to its password.")
    return password.encode()


def _private_key(path: Path) -> "EllipticCurvePrivateKey":
    require("sign")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not path.is_file():
        raise UserError(f"The key {path} was not found; {_MAKE}")
    password = _password(path)
    try:
        key = load_pem_private_key(path.read_bytes(), password)
    except (TypeError, UnsupportedAlgorithm, ValueError):
        if password is not None:
            raise UserError(f"{path} is not a key that the password in {PASSWORD} decrypts; correct it.") from None
        raise UserError(f"{path} is not a private key in PEM; {_MAKE}") from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in _CURVES:
        raise UserError(f"{path} is not a key of the elliptic curve P-256, P-384 or P-521; {_MAKE}")
    return key


def _public_key(path: Path) -> "EllipticCurvePublicKey":
    require("sign")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if not path.is_file():
        raise UserError(f"The public key {path} was not found; ask the signer for it.")
    try:
        key = load_pem_public_key(path.read_bytes())
    except (UnsupportedAlgorithm, ValueError):
        raise UserError(
            f"{path} is not a public key in PEM; the signer makes it: openssl pkey -in KEY.pem -pubout -out PUBLIC.pem"
        ) from None
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        raise UserError(f"{path} is not a public key of the elliptic curve P-256, P-384 or P-521; ask the signer.")
    return key


def _fingerprint(key: "EllipticCurvePublicKey") -> str:
    """Return the SHA-256 by which a signature names its key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
