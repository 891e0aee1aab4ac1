"""Who vouches for whom: the cluster's own certificate authority, the server's certificate, and the credentials made with it.

Everything lies in one folder that only its owner can read; what is there is used again, so kubeconfigs of the last run stay
good. A client proves who it is by a certificate: its common name is the user, its organizations are the groups.

    ca.crt ca.key            the authority           sa.key        signs the tokens of service accounts
    server.crt server.key    of the server           admin.token   a bearer token of an administrator

Source  kubeadm, the layout of /etc/kubernetes/pki; apiserver, pkg/authentication/request/x509
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import secrets
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.apiserver.vocabulary.users import User
from moorage.errors import ConfigError

__all__ = ["ADMIN", "CONTROLLERS", "LOCAL_NAMES", "SCHEDULER", "Authority", "Credential", "make_authority"]

#: Who `up` needs credentials for.
ADMIN: Final = User("moorage-admin", ("system:masters",))
SCHEDULER: Final = User("system:kube-scheduler")
CONTROLLERS: Final = User("system:kube-controller-manager")

#: Names and addresses that the server's certificate is good for.
LOCAL_NAMES: Final = (
    "localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)  # fmt: skip
_YEARS: Final = datetime.timedelta(days=3650)
_SKEW: Final = datetime.timedelta(minutes=5)

Names = Iterable[str]


class Credential(NamedTuple):
    """A client's certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """The folder's authority, loaded. ``certificate`` is its own, in PEM, for those who have to trust it.

    ``front_proxies`` is that of another, whom programs are told to trust where somebody speaks for others. Nobody has its key.
    """

    folder: Path
    certificate: bytes
    front_proxies: bytes = b""

    def issue(self, user: User, life: datetime.timedelta = datetime.timedelta(days=365)) -> Credential:
        """Return a new client certificate. The user's uid and extras have no place in it."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in user.groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user.name)])
        made = _signed(self.folder, subject, key, life, ExtendedKeyUsageOID.CLIENT_AUTH, ())
        return Credential(made, _private(key))

    def tls(self) -> ssl.SSLContext:
        """Return the server's side: TLS 1.2 and later; clients may show a certificate of this authority, and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        context.load_verify_locations(self.folder / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

    @property
    def signing_key(self) -> bytes:
        """What service accounts' tokens are signed with, in PEM."""
        return (self.folder / "sa.key").read_bytes()

    @property
    def admin_token(self) -> str:
        """A bearer token for ``ADMIN``, for clients that can do no more."""
        return (self.folder / "admin.token").read_text(encoding="ascii").strip()

    def write_kubeconfig(
        self, path: Path, port: int, user: User = ADMIN, name: str = "moorage", host: str = "127.0.0.1"
    ) -> None:
        """Write a kubeconfig with a new certificate of a user, and this authority to check the server by.

        Only its owner can read it. It is JSON, which is YAML as well.
        """
        credential = self.issue(user)
        place = f"[{host}]" if ":" in host else host
        cluster = {"server": f"https://{place}:{port}", "certificate-authority-data": _base64(self.certificate)}
        shown = {"client-certificate-data": _base64(credential.certificate), "client-key-data": _base64(credential.key)}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": name, "preferences": {},
            "clusters": [{"name": name, "cluster": cluster}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user.name}}],
            "users": [{"name": user.name, "user": shown}],
        }  # fmt: skip
        write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def make_authority(folder: Path, names: Sequence[str] = ()) -> Authority:
    """Return the authority of a folder; what it lacks is made.

    ``names`` are names and addresses the server is reached by besides ``LOCAL_NAMES``; a server certificate that lacks one
    of them, or is about to end, is made anew.

    Raises  ConfigError where the folder cannot be written, or what is in it is damaged
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / "ca.key").exists() or not (folder / "ca.crt").exists():
            _make_root(folder)
        if not _serves(folder, [*LOCAL_NAMES, *names]):
            _make_server(folder, [*LOCAL_NAMES, *names])
        if not (folder / "sa.key").exists():
            write_private(folder / "sa.key", _private(ec.generate_private_key(ec.SECP256R1())))
        if not (folder / "admin.token").exists():
            write_private(folder / "admin.token", secrets.token_urlsafe(32).encode() + b"\n")
        if not (folder / "front-proxy-ca.crt").exists():
            write_private(folder / "front-proxy-ca.crt", _root_certificate("moorage-front-proxy-ca")[0])
        return Authority(folder, (folder / "ca.crt").read_bytes(), (folder / "front-proxy-ca.crt").read_bytes())
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(
            f"{folder}: a certificate or key in it is damaged ({error}); delete the folder to start anew"
        ) from None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whatever was there before."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta) -> (
    x509.CertificateBuilder
):  # fmt: skip
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _make_root(folder: Path) -> None:
    made, key = _root_certificate("moorage-ca")
    write_private(folder / "ca.key", _private(key))
    write_private(folder / "ca.crt", made)
    (folder / "server.crt").unlink(missing_ok=True)  # the last authority's


def _root_certificate(called: str) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Return the certificate of a new authority, in PEM, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    made = (
        _builder(name, name, key, _YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), key


def _root(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("ca.key is of another kind")
    return x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key


def _signed(
    folder: Path, subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta,
    purpose: x509.ObjectIdentifier, names: Names,
) -> bytes:  # fmt: skip
    """Return a certificate of the folder's authority, in PEM."""
    root, root_key = _root(folder)
    builder = (
        _builder(subject, root.subject, key, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
    )
    if alternatives := [_alternative(name) for name in names]:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(root_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _make_server(folder: Path, names: Names) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moorage-apiserver")])
    made = _signed(folder, subject, key, datetime.timedelta(days=825), ExtendedKeyUsageOID.SERVER_AUTH, names)
    write_private(folder / "server.key", _private(key))
    write_private(folder / "server.crt", made)


def _serves(folder: Path, names: Names) -> bool:
    """Return True where the server's certificate is there, good for a month, and names all of these."""
    if not (folder / "server.crt").exists() or not (folder / "server.key").exists():
        return False
    held = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    found = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return held.not_valid_after_utc > soon and all(_alternative(name) in found for name in names)
