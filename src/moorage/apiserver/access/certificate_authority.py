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
import secrets
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.apiserver.vocabulary.users import User
from moorage.errors import ConfigError
from moorage.private_files import Tell, private_folder, put_file, read_private

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
#: A shorter token could be guessed.
_TOKEN: Final = 16
_SKEW: Final = datetime.timedelta(minutes=5)

Names = Iterable[str]
_Loaded = TypeVar("_Loaded")


class Credential(NamedTuple):
    """A client's certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """The folder's authority, loaded. ``certificate`` is its own, in PEM, for those who have to trust it.

    ``signing_key``, in PEM, signs the tokens of service accounts, and ``admin_token`` is a bearer token for ``ADMIN``.
    ``front_proxies`` is the authority of proxies that may speak for others; its key is kept nowhere.
    """

    folder: Path
    certificate: bytes
    front_proxies: bytes
    signing_key: bytes = field(repr=False)
    admin_token: str = field(repr=False)
    root: _Root = field(repr=False, compare=False)

    def issue(self, user: User, life: datetime.timedelta = datetime.timedelta(days=365)) -> Credential:
        """Return a new client certificate. The user's uid and extras have no place in it."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in user.groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user.name)])
        made = _signed(self.root, subject, key, life, ExtendedKeyUsageOID.CLIENT_AUTH, ())
        return Credential(made, _private(key))

    def tls(self) -> ssl.SSLContext:
        """Return the server's side: TLS 1.2 and later; clients may show a certificate of this authority, and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        context.load_verify_locations(cadata=self.root.certificate.public_bytes(serialization.Encoding.PEM).decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

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
        put_file(path, json.dumps(config, indent=2).encode() + b"\n")


def make_authority(folder: Path, names: Sequence[str] = (), tell: Tell = lambda line: None) -> Authority:
    """Return the authority of a folder; what it lacks is made, and ``tell`` hears of what others could read there.

    ``names`` are names and addresses the server is reached by besides ``LOCAL_NAMES``; a server certificate that lacks one
    of them, or is about to end, is made anew.

    Raises  ConfigError where the folder cannot be written, or what is in it is damaged; InputError for what is no file
    """
    try:
        private_folder(folder, tell)
        return _Folder(folder, tell).authority([*LOCAL_NAMES, *names])
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None


class _Folder:
    """The files of an authority."""

    def __init__(self, path: Path, tell: Tell) -> None:
        self._path, self._tell = path, tell

    def authority(self, names: Sequence[str]) -> Authority:
        """Return what the folder holds, after making what it lacks."""
        if not self._has("ca.key", "ca.crt"):
            key, made = _make_root("moorage-ca")
            self._write("ca.key", _private(key))
            self._write("ca.crt", made)
        root = _Root(self._load("ca.crt", x509.load_pem_x509_certificate), self._load("ca.key", _signing_key))
        if root.key.public_key() != root.certificate.public_key():
            raise self._damaged("ca.key", "it does not belong to ca.crt")
        if not self._serves(root, names):
            self._make_server(root, names)
        if not self._has("sa.key"):
            self._write("sa.key", _private(ec.generate_private_key(ec.SECP256R1())))
        if not self._has("admin.token"):
            self._write("admin.token", secrets.token_urlsafe(32).encode() + b"\n")
        if not self._has("front-proxy-ca.crt"):
            self._write("front-proxy-ca.crt", _make_root("moorage-front-proxy-ca")[1])
        for name, load in (("sa.key", _signing_key), ("front-proxy-ca.crt", x509.load_pem_x509_certificate)):
            self._load(name, load)
        authority = Authority(
            self._path, self._read("ca.crt"), self._read("front-proxy-ca.crt"), self._read("sa.key"),
            self._load("admin.token", _token), root,
        )  # fmt: skip
        try:
            authority.tls()
        except ssl.SSLError as error:
            raise self._damaged("server.crt", f"the server cannot use it: {error}") from None
        return authority

    def _has(self, *names: str) -> bool:
        return all((self._path / name).exists() for name in names)

    def _read(self, name: str) -> bytes:
        return read_private(self._path / name, self._tell)

    def _write(self, name: str, content: bytes) -> None:
        put_file(self._path / name, content)

    def _load(self, name: str, load: Callable[[bytes], _Loaded]) -> _Loaded:
        """Return what a file holds.

        Raises  ConfigError where it is damaged
        """
        try:
            return load(self._read(name))
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, why: str) -> ConfigError:
        place = self._path / name
        return ConfigError(f"{place}: it is damaged ({why}); delete {self._path} to have all certificates and keys made again")

    def _make_server(self, root: _Root, names: Names) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moorage-apiserver")])
        made = _signed(root, subject, key, datetime.timedelta(days=825), ExtendedKeyUsageOID.SERVER_AUTH, names)
        self._write("server.key", _private(key))
        self._write("server.crt", made)

    def _serves(self, root: _Root, names: Names) -> bool:
        """Return True where there is a server certificate of this authority with its key, good for a month, for these names."""
        if not self._has("server.crt", "server.key"):
            return False
        held, key = self._load("server.crt", x509.load_pem_x509_certificate), self._load("server.key", _signing_key)
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
        try:
            held.verify_directly_issued_by(root.certificate)
            found = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        good = held.not_valid_after_utc > soon and held.public_key() == key.public_key()
        return good and all(_alternative(name) in found for name in names)


class _Root(NamedTuple):
    """An authority's certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _signing_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is a key of another kind")
    return key


def _token(content: bytes) -> str:
    token = content.decode("ascii").strip()
    if len(token) < _TOKEN or any(ord(one) < 33 for one in token):
        raise ValueError(f"a token has at least {_TOKEN} characters, and no blanks among them")
    return token


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


def _make_root(called: str) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """Return the key of a new authority, and its certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    made = (
        _builder(name, name, key, _YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, made.public_bytes(serialization.Encoding.PEM)


def _signed(
    root: _Root, subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta,
    purpose: x509.ObjectIdentifier, names: Names,
) -> bytes:  # fmt: skip
    """Return a certificate of an authority, in PEM."""
    builder = (
        _builder(subject, root.certificate.subject, key, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root.key.public_key()), critical=False)
    )
    if alternatives := [_alternative(name) for name in names]:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(root.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
