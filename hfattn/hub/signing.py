"""Sign the files of a published model with OpenSSF model-signing, and check such a signature.

``model.sig`` is a Sigstore bundle. Its in-toto statement lists the SHA-256 of each published file, the manifest and the
card included, so a program that knows model-signing can check it without hfattn.
"""

import hashlib
import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import UserError
from ..extras import require
from ..files import read_json_object
from .keyless import GITHUB, KEYLESS, PAYLOAD, Identity, identity_token, sign_keyless, signed_by, verified_payload
from .manifest import SIGNATURE, STATEMENTS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

Key = Path | Literal["keyless"]  # what signs: the file of a private key, or the identity of the job that runs
Signer = Path | Identity  # who must have signed: the file of a public key, or an identity
PASSWORD = "HFATTN_SIGN_PASSWORD"  # find_secret searches the published files for its value, as its name says what it is
# What the Hub, git, a download and those who trained the model again write beside the signed files. Nothing of it is
# read when a model is loaded.
UNSIGNED = (".cache", ".git", ".gitattributes", STATEMENTS)
_NO_SIGNATURE = f"{SIGNATURE} is not a signature of files by model-signing"
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, UserError, ValueError)
_PREDICATE = "https://model_signing/signature/v1.0"
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_MAKE = "make one with: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem"


def read_key(word: str | os.PathLike[str] | None) -> Key | None:
    """Return what signs: "keyless", or the path of a private key."""
    if word is None:
        return None
    return KEYLESS if word == KEYLESS else Path(word)


def read_signer(word: str | os.PathLike[str] | None, issuer: str | None = None) -> Signer | None:
    """Return who must have signed: with an issuer an identity, and otherwise the path of a public key.

    Raises:
        UserError: there is an issuer and no identity, or the reverse.
    """
    if issuer is not None:
        return Identity("" if word is None else os.fspath(word), issuer)
    if word is None:
        return None
    if not Path(word).is_file() and re.search("@|://", os.fspath(word)):
        raise UserError(f"{word} is not a file; if it is an identity, name its issuer: --issuer {GITHUB}")
    return Path(word)


def check_key(key: Key, folder: Path | None = None) -> None:
    """Check before any work that there is something to sign with.

    Args:
        key: file with the private key, or "keyless".
        folder: the folder that will be published, if any.

    Raises:
        UserError: the extra is not installed; this job has no identity; or the key is in the folder, cannot be read or
            decrypted, or is not one of the elliptic curves P-256, P-384 and P-521.
    """
    if not isinstance(key, Path):
        require("sign")
        identity_token()
        return
    _private_key(key)
    if folder is not None and key.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{key} is a private key in the folder that is published; move it out of {folder}.")


def sign(path: Path, key: Key, signature: Path | None = None) -> Identity | None:
    """Write the signature of all files of a folder, or of one file.

    Args:
        path: the folder or the file.
        key: file with the private key, or "keyless".
        signature: file to write; by default, ``model.sig`` in the folder.

    Returns:
        The identity that signed without a key; None with a key.

    Raises:
        UserError: see ``check_key``; or Sigstore cannot be reached, or refuses the identity.
    """
    require("sign")
    from model_signing import hashing, signing

    hashes = hashing.Config().set_ignored_paths(paths=[SIGNATURE, *UNSIGNED], ignore_git_paths=False)
    config, signature = signing.Config().set_hashing_config(hashes), signature or path / SIGNATURE
    if not isinstance(key, Path):
        return sign_keyless(config, path, signature)
    _private_key(key)
    password: Any = _password(key)  # annotated as text, which cryptography refuses
    config.use_elliptic_key_signer(private_key=key, password=password).sign(path, signature)
    return None


def keep_signature(folder: Path, earlier: Path, key: Key) -> None:
    """Replace the signature of a folder by an earlier one of the same files by the same signer, if it is one.

    Two signatures of the same files differ, and an unchanged model shall make no commit.
    """
    signer = _private_key(key).public_key() if isinstance(key, Path) else signed_by(folder / SIGNATURE)
    try:
        _check(folder, earlier, signer)
    except AssertionError:
        return
    shutil.copyfile(earlier, folder / SIGNATURE)


def check_signature(folder: Path, signer: Signer) -> str:
    """Check that a folder has the files that a signer signed, and no others.

    The files in ``UNSIGNED`` are not compared.

    Args:
        folder: the folder.
        signer: file with the public key of the signer, or the identity.

    Returns:
        Number of files, and the signer.

    Raises:
        AssertionError: there is no signature by this signer, or a file has changed, was added or is missing.
        UserError: the extra is not installed, or the public key, or the keys of Sigstore, cannot be read.
    """
    require("sign")
    known = _public_key(signer) if isinstance(signer, Path) else signer
    assert (folder / SIGNATURE).is_file(), f"there is no {SIGNATURE}: the files are not signed"
    count = _check(folder, folder / SIGNATURE, known)
    return f"{count} files, by " + (f"the key of {signer}" if isinstance(signer, Path) else str(signer))


def _check(folder: Path, path: Path, signer: "EllipticCurvePublicKey | Identity") -> int:
    """Check a signature of a folder, and return the number of files; raises AssertionError."""
    signature = _read(path)
    # The files are compared with the very bytes that were signed; reading the bundle once more could give another
    # statement.
    if isinstance(signer, Identity):
        files = _files(verified_payload(path, signer))
    else:
        _check_value(signature, signer)
        files = _files(signature.payload)
    check_signed(files, {name: _sha256(folder / name) for name in filter(_is_covered, _names(folder))})
    return len(files)


def _check_value(signature: "_Signature", key: "EllipticCurvePublicKey") -> None:
    """Check that a key signed a statement; raises AssertionError."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    algorithm = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}[key.curve.key_size]
    kind = PAYLOAD.encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(signature.payload), signature.payload)
    try:
        key.verify(signature.value, signed, ECDSA(algorithm))
    except InvalidSignature:
        raise AssertionError(f"{SIGNATURE} was not made with this key, or was changed") from None


def signed_files(signature: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a signature lists. Whose signature it is, is not checked.

    Raises:
        AssertionError: it is not a signature of files.
    """
    return _files(_read(signature).payload)


def check_signed(signed: Mapping[str, str], files: Mapping[str, str | None]) -> None:
    """Compare the files that a signature lists with others by their SHA-256; raises AssertionError."""
    for name in sorted({*filter(_is_covered, (*signed, *files))}):
        assert name in files, f"{name} is missing, which was signed"
        assert name in signed, f"{name} was added after the files were signed"
        assert signed[name] == files[name], f"{name} has changed since it was signed"


class _Signature(NamedTuple):
    """A bundle: the statement as it was signed, and the signature of it."""

    payload: bytes
    value: bytes


def _read(path: Path) -> _Signature:
    """Read a bundle; raises AssertionError."""
    try:
        envelope = read_json_object(path)["dsseEnvelope"]
        (value,) = (b64decode(each["sig"]) for each in envelope["signatures"])
        return _Signature(b64decode(envelope["payload"]), value)
    except _MALFORMED:
        raise AssertionError(_NO_SIGNATURE) from None


def _files(payload: bytes) -> dict[str, str]:
    """Return the SHA-256 of the files that a statement lists; raises AssertionError."""
    try:
        statement = json.loads(payload)
        predicate = statement["predicate"]
        kind = statement["predicateType"], predicate["serialization"]["method"], predicate["serialization"]["hash_type"]
        if kind != (_PREDICATE, "files", "sha256"):
            raise ValueError(kind)
        return {str(each["name"]): str(each["digest"]) for each in predicate["resources"]}
    except _MALFORMED:
        raise AssertionError(_NO_SIGNATURE) from None


def _is_covered(name: str) -> bool:
    return name != SIGNATURE and name.split("/")[0] not in UNSIGNED


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
