"""A Sigstore instance in memory, for tests: the real client gets a token, a certificate and a log entry from it.

    with SigstoreServer() as sigstore:
        sigstore.take_over(monkeypatch, tmp_path)  # this process is a job of GitHub Actions that trusts this instance

It has keys of its own and the endpoints that a signature needs: the tokens of GitHub Actions, an issuer of OpenID
Connect, the authority Fulcio, whose certificates have the timestamp of a log (RFC 6962), and the log Rekor with entries
of the kind dsse 0.0.1. No token is checked.
"""

import json
import struct
import threading
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Json = dict[str, Any]
ISSUER = "https://token.actions.githubusercontent.com"
WORKFLOW = "user/models/.github/workflows/release.yml@refs/heads/main"
IDENTITY = f"https://github.com/{WORKFLOW}"
_ISSUER_OID = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_TIMESTAMPS_OID = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_LONG_AGO = "2020-01-01T00:00:00Z"


def _spki(key: EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


class SigstoreServer:
    """The instance. `entries` counts its log; `refuses` names an endpoint that answers with an error.

    Args:
        valid: time from now on in which the certificate of the authority is valid.
    """

    def __init__(self, valid: timedelta = timedelta(days=1)) -> None:
        self.authority, self.log, self.certificates = (generate_private_key(SECP256R1()) for _ in range(3))
        self.claims: Json = {"iss": ISSUER, "sub": "repo:user/models", "job_workflow_ref": WORKFLOW}
        self.entries = 0
        self.refuses = ""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        self.root = (
            self._certificate(name, name, self.authority, valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(self._usage(key_cert_sign=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()),
                critical=False,
            )
            .sign(self.authority, SHA256())
        )
        instance = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({})

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: Json) -> None:
                place = self.path.partition("?")[0].rpartition("/")[2]
                data = json.dumps({} if place == instance.refuses else instance.answer(place, body, self.headers))
                self.send_response(503 if place == instance.refuses else 201)
                self.end_headers()
                self.wfile.write(data.encode())

            def send_response(self, code: int, message: str | None = None) -> None:
                super().send_response(200 if (code, self.command) == (201, "GET") else code, message)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take_over(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
        """For the length of a test, this process is a job of GitHub Actions that trusts this instance.

        Returns the file with the configuration.
        """
        path = folder / "sigstore.json"
        path.write_text(json.dumps(self.configuration()))
        monkeypatch.setenv("HFATTN_SIGSTORE", str(path))
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of the job")
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{self.url}/token?api-version=2")
        return path

    def configuration(self) -> Json:
        """The keys and the addresses of the instance, as a client reads them."""

        def log(key: EllipticCurvePrivateKey) -> Json:
            public = {"rawBytes": _base64(_spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": public | {"validFor": {"start": _LONG_AGO}},
                "logId": {"keyId": _base64(sha256(_spki(key)).digest())},
            }

        authority = {
            "subject": {"organization": "test", "commonName": "test"},
            "uri": self.url,
            "certChain": {"certificates": [{"rawBytes": _base64(self.root.public_bytes(Encoding.DER))}]},
            "validFor": {"start": _LONG_AGO},
        }
        service = {"majorApiVersion": 1, "validFor": {"start": _LONG_AGO}, "operator": "test"}
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self.log)],
                "ctlogs": [log(self.certificates)],
                "certificateAuthorities": [authority],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service | {"url": self.url}],
                "oidcUrls": [service | {"url": self.url}],
                "rekorTlogUrls": [service | {"url": self.url}],
                "rekorTlogConfig": {"selector": "ANY"},
            },
        }

    def answer(self, place: str, body: Json, headers: Any) -> Json:
        """What an endpoint, the last word of an address, says."""
        match place:
            case "token":
                return {"value": self.token()}
            case "openid-configuration":
                return {"authorization_endpoint": self.url, "token_endpoint": self.url}
            case "signingCert":
                token = headers["Authorization"].removeprefix("Bearer ")
                claims = jwt.decode(token, options={"verify_signature": False, "verify_aud": False})
                request = x509.load_pem_x509_csr(b64decode(body["certificateSigningRequest"]))
                chain = [self.certify(claims, request.public_key()), self.root]
                texts = [each.public_bytes(Encoding.PEM).decode() for each in chain]
                return {"signedCertificateEmbeddedSct": {"chain": {"certificates": texts}}}
        assert place == "entries", place
        return self.entry(body["spec"]["proposedContent"])

    def token(self) -> str:
        now = int(datetime.now(UTC).timestamp())
        return jwt.encode(self.claims | {"aud": "sigstore", "iat": now, "exp": now + 300}, "s" * 32)

    def certify(self, claims: Json, key: Any) -> x509.Certificate:
        """A certificate of ten minutes for the workflow that the claims name, with the timestamp of a log."""
        draft = (
            self._certificate(x509.Name([]), self.root.subject, key, timedelta(minutes=10))
            .add_extension(self._usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier(f"https://github.com/{claims['job_workflow_ref']}")]
                ),
                critical=True,
            )
            .add_extension(x509.UnrecognizedExtension(_ISSUER_OID, claims["iss"].encode()), critical=False)
        )
        signed = draft.sign(self.authority, SHA256()).tbs_certificate_bytes
        milliseconds = int(datetime.now(UTC).timestamp() * 1000)
        # RFC 6962, section 3.2: version 1, kind 0, time, entry of kind 1, its issuer, the certificate, no extensions.
        issuer = sha256(_spki(self.authority)).digest()
        logged = struct.pack("!BBQH", 0, 0, milliseconds, 1) + issuer + len(signed).to_bytes(3) + signed + bytes(2)
        value = self.certificates.sign(logged, ECDSA(SHA256()))
        stamp = struct.pack(
            "!B32sQHBBH", 0, sha256(_spki(self.certificates)).digest(), milliseconds, 0, 4, 3, len(value)
        )
        listed = struct.pack("!HH", len(stamp + value) + 2, len(stamp + value)) + stamp + value
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)])) + listed
        return draft.add_extension(x509.UnrecognizedExtension(_TIMESTAMPS_OID, octets), critical=False).sign(
            self.authority, SHA256()
        )

    def entry(self, proposed: Json) -> Json:
        """Log a signature, as the last of two leaves of a tree."""
        envelope = json.loads(proposed["envelope"])
        (signature,) = envelope["signatures"]
        spec: Any = {
            "envelopeHash": {"algorithm": "sha256", "value": sha256(proposed["envelope"].encode()).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": sha256(b64decode(envelope["payload"])).hexdigest()},
            "signatures": [{"signature": signature["sig"], "verifier": proposed["verifiers"][0]}],
        }
        body = rfc8785.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        self.entries += 1
        identifier = sha256(_spki(self.log)).digest()
        promised: Any = {
            "body": _base64(body),
            "integratedTime": int(datetime.now(UTC).timestamp()),
            "logID": identifier.hex(),
            "logIndex": self.entries,
        }
        promise = self.log.sign(rfc8785.dumps(promised), ECDSA(SHA256()))
        sibling = sha256(b"\0sibling").digest()
        root = sha256(b"\1" + sibling + sha256(b"\0" + body).digest()).digest()
        note = f"test - 1\n2\n{_base64(root)}\n"
        seal = _base64(identifier[:4] + self.log.sign(note.encode(), ECDSA(SHA256())))
        proof = {
            "logIndex": 1,
            "treeSize": 2,
            "rootHash": root.hex(),
            "hashes": [sibling.hex()],
            "checkpoint": f"{note}\n\N{EM DASH} test {seal}\n",
        }
        verification = {"signedEntryTimestamp": _base64(promise), "inclusionProof": proof}
        return {"entry": promised | {"verification": verification}}

    def _certificate(
        self, subject: x509.Name, issuer: x509.Name, key: Any, length: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC).replace(microsecond=0)
        public = key.public_key() if isinstance(key, EllipticCurvePrivateKey) else key
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + length)
        )

    def _usage(self, *, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=digital_signature,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=key_cert_sign,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
