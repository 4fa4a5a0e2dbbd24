"""Sign without a key, by Sigstore (Newman, Meyers and Torres-Arias, 2022), and check such a signature.

An issuer of OpenID Connect, such as that of GitHub Actions, states the identity of the job that runs. Fulcio, the
certificate authority of Sigstore, confirms for ten minutes that a new key belongs to this identity, and Rekor, its log,
that the key signed in these minutes. A check therefore needs an identity and its issuer in place of a public key.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from huggingface_hub import constants

from ..errors import UserError
from .code_findings import printable
from .manifest import SIGNATURE

if TYPE_CHECKING:
    from model_signing.signing import Config
    from sigstore.models import ClientTrustConfig

KEYLESS: Final = "keyless"  # in place of the file of a key
INSTANCE = "HFATTN_SIGSTORE"  # the environment variable that names the configuration of another Sigstore instance
GITHUB = "https://token.actions.githubusercontent.com"
PAYLOAD = "application/vnd.in-toto+json"
_ISSUER = "1.3.6.1.4.1.57264.1.1"  # the extension of a certificate by Fulcio that names the issuer


@dataclass(frozen=True)
class Identity:
    """Who signs without a key, as a certificate of Sigstore names it.

    Attributes:
        name: address of the workflow at a branch or tag, or an e-mail address.
        issuer: address of the OpenID Connect issuer that states the identity.

    Raises:
        UserError: there is no name, or the issuer is not an address.
    """

    name: str
    issuer: str

    def __post_init__(self) -> None:
        # To the library, an empty issuer would mean any issuer.
        if not self.name or not re.fullmatch(r"https?://\S+", self.issuer):
            raise UserError(
                f"{self.name!r} of {self.issuer!r} is not an identity; name the signer and the address of its issuer, "
                f"such as {GITHUB}."
            )

    def __str__(self) -> str:
        return f"{self.name}, as {self.issuer} states"


def identity_token() -> str:
    """Return the token that states the identity of this job.

    Raises:
        UserError: there is none.
    """
    from sigstore.oidc import detect_credential

    try:
        token = detect_credential()
    except Exception as error:  # it asks programs and addresses of many services
        raise UserError(
            f"This job gets no identity to sign with ({_said(error)}); in GitHub Actions, give it the permission "
            "id-token: write, and in GitLab, an id_tokens entry SIGSTORE_ID_TOKEN for the audience sigstore."
        ) from error
    if token is None:
        raise UserError(
            "Without a key, a job of GitHub Actions, GitLab or another service with OpenID Connect signs, and this is "
            "none; sign with a key: --sign KEY.pem"
        )
    return token


def sign_keyless(config: "Config", path: Path, signature: Path) -> Identity:
    """Write the signature of a file or a folder by the identity of this job, and return the identity.

    Args:
        config: what is hashed.
        path: the file or the folder.
        signature: file to write.

    Raises:
        UserError: this job has no identity, or Sigstore cannot be reached or refuses it; nothing was written.
    """
    place = os.environ.get(INSTANCE)
    token = identity_token()
    try:
        config.use_sigstore_signer(identity_token=token, trust_config=Path(place) if place else None)
        config.sign(path, signature)
        identity = signed_by(signature)
        verified_payload(signature, identity)
    except Exception as error:  # the errors of Sigstore's clients have no common base class
        signature.unlink(missing_ok=True)
        reason = _said(error).replace(token, "...")
        raise UserError(
            f"The files were not signed by Sigstore ({reason}); nothing was sent to the Hub, so try again."
        ) from error
    return identity


def signed_by(signature: Path) -> Identity:
    """Return the identity that the certificate in a signature names. The signature is not checked.

    Raises:
        ValueError: it has no certificate with an address and an issuer.
    """
    from cryptography.x509 import (
        ObjectIdentifier,
        RFC822Name,
        SubjectAlternativeName,
        UniformResourceIdentifier,
        UnrecognizedExtension,
    )
    from sigstore.models import Bundle

    extensions = Bundle.from_json(signature.read_bytes()).signing_certificate.extensions
    names = extensions.get_extension_for_class(SubjectAlternativeName).value
    (name,) = (*names.get_values_for_type(RFC822Name), *names.get_values_for_type(UniformResourceIdentifier))
    issuer = extensions.get_extension_for_oid(ObjectIdentifier(_ISSUER)).value
    assert isinstance(issuer, UnrecognizedExtension)
    return Identity(name, issuer.value.decode())


def verified_payload(signature: Path, identity: Identity) -> bytes:
    """Return what an identity signed without a key.

    Args:
        signature: the Sigstore bundle.
        identity: who must have signed.

    Raises:
        AssertionError: it is not a signature by this identity, in the time of its certificate, that is in the log.
        UserError: the keys of Sigstore cannot be read.
    """
    from sigstore.models import Bundle
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity as Expected

    verifier = Verifier(trusted_root=_instance().trusted_root)
    try:
        expected = Expected(identity=identity.name, issuer=identity.issuer)
        kind, payload = verifier.verify_dsse(Bundle.from_json(signature.read_bytes()), expected)
        assert kind == PAYLOAD, f"it is of {kind}"
    except Exception as error:  # whatever a bundle that an attacker wrote leads to
        raise AssertionError(f"{SIGNATURE} was not made by {identity}, or was changed: {_said(error)}") from None
    return payload


def _instance() -> "ClientTrustConfig":
    """Return keys and addresses of Sigstore: updated, unless offline; or those of the instance that is named."""
    from sigstore.errors import Error
    from sigstore.models import ClientTrustConfig

    place = os.environ.get(INSTANCE)
    try:
        if place:
            return ClientTrustConfig.from_json(Path(place).read_text(encoding="utf-8"))
        return ClientTrustConfig.production(offline=constants.HF_HUB_OFFLINE)
    except (Error, OSError, ValueError) as error:
        if place:
            raise UserError(
                f"{place}, which {INSTANCE} names, is not a trust configuration of Sigstore ({_said(error)}); correct "
                "it."
            ) from error
        raise UserError(
            f"The keys of Sigstore could not be updated ({_said(error)}); check the connection, or set "
            "HF_HUB_OFFLINE=1 to use those that are stored."
        ) from error


def _said(error: BaseException) -> str:
    text = str(error) or str(error.__cause__ or "") or type(error).__name__
    return printable(" ".join(text.split()), 300)
