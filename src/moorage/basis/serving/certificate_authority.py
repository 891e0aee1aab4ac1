"""The cluster's certificate authority, the server certificate and the credentials that the authority issues.

All files are in one folder that only its owner can read. Existing files are reused, so kubeconfigs from the previous run
stay valid. In a client certificate the common name is the user and the organizations are the groups.

    ca.crt ca.key            certificate authority    sa.key        signs service account tokens
    server.crt server.key    server certificate       admin.token   bearer token of an administrator

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

from moorage.api.documents.http_messages import User
from moorage.basis.files import Warn, private_folder, put_file, read_private
from moorage.errors import ConfigError

#: The users that ``moorage up`` creates credentials for.
ADMIN: Final = User("moorage-admin", ("system:masters",))
SCHEDULER: Final = User("system:kube-scheduler")
CONTROLLERS: Final = User("system:kube-controller-manager")

#: DNS names and addresses that every server certificate is valid for.
LOCAL_NAMES: Final = (
    "localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)  # fmt: skip
_YEARS: Final = datetime.timedelta(days=3650)
#: Minimum length of the administrator's token; a shorter one can be guessed.
_MIN_TOKEN: Final = 16
_SKEW: Final = datetime.timedelta(minutes=5)

Names = Iterable[str]
#: From when until when a certificate is valid.
Span = tuple[datetime.datetime, datetime.datetime]
_Loaded = TypeVar("_Loaded")


class Credential(NamedTuple):
    """A client certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """A certificate authority loaded from a folder. ``certificate`` is the CA certificate in PEM.

    ``signing_key``, in PEM, signs service account tokens. ``admin_token`` is a bearer token of ``ADMIN``. ``front_proxies``
    is the CA certificate for front proxies; its private key is discarded.
    """

    folder: Path
    certificate: bytes
    front_proxies: bytes
    signing_key: bytes = field(repr=False)
    admin_token: str = field(repr=False)
    root: Root = field(repr=False, compare=False)

    def issue(self, user: User, life: datetime.timedelta = datetime.timedelta(days=365)) -> Credential:
        """Return a new client certificate for a user. Certificates do not carry the user's uid or extra fields."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in user.groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user.name)])
        made = signed(self.root, subject, key, _from_now(life), ExtendedKeyUsageOID.CLIENT_AUTH, ())
        return Credential(made, private_pem(key))

    def tls(self) -> ssl.SSLContext:
        """Return the server's TLS context: TLS 1.2 or later; a client certificate is optional and must be signed by this
        authority.
        """
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
        """Write a kubeconfig with a new client certificate for a user and the CA certificate that verifies the server.

        Only the owner can read the file. It is JSON, which is also valid YAML.
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


def make_authority(folder: Path, names: Sequence[str] = (), warn: Warn = lambda line: None) -> Authority:
    """Load the authority of a folder, creating missing files. ``warn`` receives a warning for each file that others can read.

    ``names`` are the server's DNS names and addresses in addition to ``LOCAL_NAMES``. The server certificate is replaced if
    it lacks one of them or is about to expire.

    Raises  ConfigError if the folder cannot be written or a file in it is damaged; InputError for a path that is not a
            regular file
    """
    try:
        private_folder(folder, warn)
        return _Folder(folder, warn).authority([*LOCAL_NAMES, *names])
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None


class _Folder:
    """The files of an authority on disk."""

    def __init__(self, path: Path, warn: Warn) -> None:
        self._path, self._warn = path, warn

    def authority(self, names: Sequence[str]) -> Authority:
        """Return the loaded authority after creating missing files."""
        if not self._has("ca.key", "ca.crt"):
            key, made = make_root("moorage-ca", _from_now(_YEARS))
            self._write("ca.key", private_pem(key))
            self._write("ca.crt", made)
        root = Root(self._load("ca.crt", x509.load_pem_x509_certificate), self._load("ca.key", _signing_key))
        if root.key.public_key() != root.certificate.public_key():
            raise self._damaged("ca.key", "it does not belong to ca.crt")
        if not self._has_valid_server_certificate(root, names):
            key, life = ec.generate_private_key(ec.SECP256R1()), datetime.timedelta(days=825)
            made = signed(root, named("moorage-apiserver"), key, _from_now(life), ExtendedKeyUsageOID.SERVER_AUTH, names)
            self._write("server.key", private_pem(key))
            self._write("server.crt", made)
        if not self._has("sa.key"):
            self._write("sa.key", private_pem(ec.generate_private_key(ec.SECP256R1())))
        if not self._has("admin.token"):
            self._write("admin.token", secrets.token_urlsafe(32).encode() + b"\n")
        if not self._has("front-proxy-ca.crt"):
            self._write("front-proxy-ca.crt", make_root("moorage-front-proxy-ca", _from_now(_YEARS))[1])
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
        return read_private(self._path / name, self._warn)

    def _write(self, name: str, content: bytes) -> None:
        put_file(self._path / name, content)

    def _load(self, name: str, load: Callable[[bytes], _Loaded]) -> _Loaded:
        """Return a file's parsed content.

        Raises  ConfigError if the file is damaged
        """
        try:
            return load(self._read(name))
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, why: str) -> ConfigError:
        place = self._path / name
        return ConfigError(f"{place}: it is damaged ({why}); delete {self._path} to recreate all certificates and keys")

    def _has_valid_server_certificate(self, root: Root, names: Names) -> bool:
        """Return True if the server certificate exists, is signed by this authority, covers ``names`` and is valid for 30
        more days.
        """
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


class Root(NamedTuple):
    """A CA certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _signing_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is not an EC key")
    return key


def _token(content: bytes) -> str:
    token = content.decode("ascii").strip()
    if len(token) < _MIN_TOKEN or any(ord(one) < 33 for one in token):
        raise ValueError(f"a token has at least {_MIN_TOKEN} characters, none of them a blank")
    return token


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, not encrypted."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _from_now(life: datetime.timedelta) -> Span:
    now = datetime.datetime.now(datetime.UTC)
    return now - _SKEW, now + life


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, span: Span) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(span[0]).not_valid_after(span[1])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def named(common_name: str) -> x509.Name:
    """Return a name that is only a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def make_root(common_name: str, span: Span) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """Return the private key of a new CA, and its certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = named(common_name)
    made = (
        _builder(name, name, key, span)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, made.public_bytes(serialization.Encoding.PEM)


def signed(
    root: Root, subject: x509.Name, key: ec.EllipticCurvePrivateKey, span: Span,
    purpose: x509.ObjectIdentifier, names: Names,
) -> bytes:  # fmt: skip
    """Return a certificate signed by a CA, in PEM."""
    builder = (
        _builder(subject, root.certificate.subject, key, span)
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
