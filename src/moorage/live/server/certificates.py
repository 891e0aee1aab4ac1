"""The serving certificate (given or self-signed), the TLS settings, and the CAs of client certificates.

Certificates, keys and CA bundles are read again every minute. A new connection uses the current ones, so rotation needs no
restart; unusable files are logged, and the previous ones stay in use.

Source  apiserver/pkg/server/options/serving.go, dynamiccertificates; component-base/cli/flag/ciphersuites_flag.go
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.basis import table_of
from moorage.basis.client.credentials import load_pair
from moorage.basis.files import put_file, read_file
from moorage.basis.serving.certificate_authority import Root, make_root, named, private_pem, signed
from moorage.errors import InputError

_PAIR_NAME: Final = "kube-scheduler"
_VALID: Final = timedelta(days=365)
_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


@cache
def _names() -> Mapping[str, Mapping[str, str]]:
    """Return OpenSSL's names of cipher suites and of curves, by Go's."""
    return table_of("moorage.live.server", "tls.toml")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (with its intermediates) and its key, in PEM; ``where`` is their place in messages."""

    certificate: bytes
    key: bytes = field(repr=False)
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NamedPair:
    """Files of a certificate and its key, with the server names to use them for; empty: the names in the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...] = ()

    def read(self) -> Pair:
        """Return the current content of the files.

        Raises  InputError
        """
        return Pair(read_file(self.certificate), read_file(self.key), f"{self.certificate}, {self.key}: ")


def named_pair(text: str) -> NamedPair:
    """Parse a value of ``--tls-sni-cert-key``: ``CERT,KEY`` or ``CERT,KEY:NAME,NAME``.

    Raises  InputError
    """
    files, colon, listed = text.partition(":")
    parts = [part.strip() for part in files.split(",")]
    names = tuple(name.strip() for name in listed.split(","))
    if colon and not listed.strip():
        raise InputError(f"--tls-sni-cert-key {text}: empty names list is not allowed")
    if len(parts) != 2 or not all(parts):
        raise InputError(f"--tls-sni-cert-key {text}: expected comma separated certificate and key file paths")
    return NamedPair(parts[0], parts[1], names if colon else ())


@dataclass(frozen=True, slots=True)
class TlsRules:
    """TLS settings by Go's names; ``context`` raises InputError for unknown names."""

    min_version: str = ""
    suites: Sequence[str] = ()
    curves: Sequence[str] = ()

    def context(self, pair: Pair) -> ssl.SSLContext:
        if self.min_version not in _VERSIONS:
            known = ", ".join(filter(None, _VERSIONS))
            raise InputError(f'unknown tls version "{self.min_version}"; use {known}')
        suites, curves = _names()["suites"], _names()["curves"]
        unknown = [name for name in self.suites if name not in suites]
        if unknown:
            raise InputError(f"Cipher suite {unknown[0]} not supported or doesn't exist")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        chosen = [suites[name] for name in self.suites if suites[name]]
        try:
            if chosen:
                context.set_ciphers(":".join(chosen))
            self._set_curves(context, curves)
        except ssl.SSLError as error:
            raise InputError(f"--tls-cipher-suites: {error}") from None
        context.set_alpn_protocols(["http/1.1"])
        try:
            load_pair(context, pair.certificate, pair.key)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = "the private key does not match it" if "MISMATCH" in str(error) else str(error)
            raise InputError(f"{pair.where}the serving certificate cannot be used: {reason}") from None
        return context

    def _set_curves(self, context: ssl.SSLContext, names: Mapping[str, str]) -> None:
        """Restrict a context to the curves.

        Python can restrict a context to a single curve; for several curves, OpenSSL chooses among all that it has. Of several,
        those that this OpenSSL lacks, as the post-quantum ones before 3.5, are not offered.

        Raises  InputError for unknown curves, and if none can be offered
        """
        for number in self.curves:
            if number not in names:
                raise InputError(f"curve preference {number} is not supported; use {', '.join(names)}")
            if self.curves.count(number) > 1:
                raise InputError(f"duplicate curve preference {number}")
        usable = [number for number in self.curves if _can_offer(names[number])]
        if self.curves and not usable:
            lacking = ", ".join(f"{number} ({names[number]})" for number in self.curves)
            raise InputError(f"curve preference {lacking} is not supported by {ssl.OPENSSL_VERSION}; add 29 (X25519)")
        if len(self.curves) == 1:
            context.set_ecdh_curve(names[usable[0]])


def _can_offer(curve: str) -> bool:
    """Return whether this OpenSSL has a key exchange."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve)
    except (ValueError, ssl.SSLError):
        return False
    return True


def authorities(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a CA bundle.

    Raises  InputError if it contains none or is invalid
    """
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise InputError(f"{where}: cannot read CA certificates: {error}") from None


# -- loading or creating the certificate --------------------------------------------------------------------------------


def given_or_made(cert_file: str, key_file: str, cert_dir: str, address: str, now: datetime) -> tuple[Pair, NamedPair | None]:
    """Return the serving certificate; and its files, given or in ``cert_dir``, None if it is only in memory.

    A certificate that is created for ``cert_dir`` is written there, to be reused by the next start.

    Raises  InputError for unreadable or unwritable files
    """
    if cert_file or key_file:
        if not (cert_file and key_file):
            raise InputError("--tls-cert-file and --tls-private-key-file must be given together")
        files = NamedPair(cert_file, key_file)
        return files.read(), files
    if not cert_dir:
        return self_signed(address, now), None
    files = NamedPair(str(Path(cert_dir, f"{_PAIR_NAME}.crt")), str(Path(cert_dir, f"{_PAIR_NAME}.key")))
    if Path(files.certificate).exists() and Path(files.key).exists():
        return files.read(), files
    made = self_signed(address, now)
    try:
        Path(cert_dir).mkdir(parents=True, exist_ok=True)
        put_file(Path(files.certificate), made.certificate, 0o644)
        put_file(Path(files.key), made.key)
    except OSError as error:
        raise InputError(f"{error.filename or cert_dir}: {error.strerror}") from None
    return made, files


def self_signed(address: str, now: datetime) -> Pair:
    """Create a certificate for localhost and the serving address, valid for a year, signed by a new CA."""
    started, stamp = now.astimezone(UTC) - timedelta(hours=1), int(now.timestamp())
    root_key, root = make_root(f"localhost-ca@{stamp}", (started, started + _VALID))
    own, key = ip_address(address), ec.generate_private_key(ec.SECP256R1())
    names = ["localhost", "127.0.0.1", *([] if own.is_unspecified else [str(own)])]
    leaf = signed(
        Root(x509.load_pem_x509_certificate(root), root_key), named(f"localhost@{stamp}"), key, (started, started + _VALID),
        ExtendedKeyUsageOID.SERVER_AUTH, dict.fromkeys(names),
    )  # fmt: skip
    return Pair(leaf + root, private_pem(key))


# -- reloading - --------------------------------------------------------------------------------------------------------


class ServingTls:
    """The TLS settings of the server. Listen with ``context``; it switches each connection to the current certificate."""

    def __init__(self, rules: TlsRules, pair: Pair, files: NamedPair | None = None, named: Sequence[NamedPair] = ()) -> None:
        self._rules, self._files, self._named_files = rules, files, tuple(named)
        self._pair = pair
        self._bundle = ""
        self._named_pairs = [one.read() for one in named]
        self.context = rules.context(pair)
        self._current, self._by_name = self._built(pair, self._named_pairs)
        self.context.sni_callback = self._choose

    def trust(self, bundle: str) -> None:
        """Request client certificates signed by one of these CAs (PEM); "" requests none.

        Raises  InputError for an invalid bundle
        """
        if bundle != self._bundle:
            before, self._bundle = self._bundle, bundle
            try:
                self._current, self._by_name = self._built(self._pair, self._named_pairs)
            except InputError:
                self._bundle = before
                raise
        # The verify mode of a connection is that of the context which accepted it.
        self.context.verify_mode = ssl.CERT_OPTIONAL if bundle else ssl.CERT_NONE

    def reload(self) -> bool:
        """Read the certificates again. Return whether they changed.

        Raises  InputError if they are unusable; the previous ones stay in use
        """
        pair = self._pair if self._files is None else self._files.read()
        named = [one.read() for one in self._named_files]
        if (pair, named) == (self._pair, self._named_pairs):
            return False
        self._current, self._by_name = self._built(pair, named)
        self._pair, self._named_pairs = pair, named
        return True

    def _built(self, pair: Pair, named: Sequence[Pair]) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        by_name: dict[str, ssl.SSLContext] = {}
        for files, one in zip(self._named_files, named, strict=True):
            context = self._trusting(self._rules.context(one))
            for name in files.names or _names_of(one):
                by_name.setdefault(name.lower(), context)
        return self._trusting(self._rules.context(pair)), by_name

    def _trusting(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self._bundle:
            try:
                context.load_verify_locations(cadata=self._bundle)
            except ssl.SSLError as error:
                raise InputError(f"the CA certificates for clients cannot be used: {error}") from None
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        wanted = (name or "").lower().rstrip(".")
        wildcard = f"*.{wanted.partition('.')[2]}"
        connection.context = self._by_name.get(wanted) or self._by_name.get(wildcard) or self._current


def _names_of(pair: Pair) -> list[str]:
    certificate = x509.load_pem_x509_certificates(pair.certificate)[0]
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return list(extension.value.get_values_for_type(x509.DNSName))
