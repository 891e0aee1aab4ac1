"""Certificates that Go accepts: without key identifiers, below an intermediate CA, with other text around them."""

import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.basis.client.credentials import Endpoint, Identity, tls_context
from moorage.errors import InputError

NOW = datetime.datetime.now(datetime.UTC)


class Made:
    """A certificate, self-signed or signed by another. Leaf certificates contain an address; none has key identifiers."""

    def __init__(self, name, signer=None, *, ca=True):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        built = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signer.name if signer else self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=1))
            .not_valid_after(NOW + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if not ca:
            address = x509.IPAddress(ipaddress.ip_address("10.0.0.1"))
            built = built.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        self.pem = built.sign(signer.key if signer else self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @property
    def private(self):
        plain = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


@pytest.fixture(scope="module")
def chain():
    root = Made("root")
    middle = Made("middle", root)
    return root, middle, Made("server", middle, ca=False)


@pytest.fixture
def server(chain, tmp_path):
    """Return a server's TLS context with its certificate and its issuer's."""
    _, middle, leaf = chain
    pair = tmp_path / "server.pem"
    pair.write_bytes(leaf.pem + middle.pem + leaf.private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


def shake_hands(client, server, name="10.0.0.1"):
    """Perform a TLS handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in [*ends]:
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not ends:
            return
    raise AssertionError("the handshake does not end")


def trusting(ca, **more):
    return tls_context(Endpoint("https://10.0.0.1:6443", ca=ca, **more), Identity())


@pytest.mark.parametrize("trusted", [0, 1], ids=["the root", "what signed it, though that is not the root"])
def test_a_server_is_trusted_by_any_authority_in_the_kubeconfig(chain, server, trusted):
    shake_hands(trusting(chain[trusted].pem), server)


def test_certificates_need_no_key_identifiers(chain, server, monkeypatch):
    """Python 3.13 requires them by default; many clusters' certificates have none."""
    plain = ssl.create_default_context

    def as_in_3_13(*arguments, **more):
        context = plain(*arguments, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_in_3_13)
    shake_hands(trusting(chain[0].pem), server)


def test_an_authority_may_be_surrounded_by_other_text(chain, server):
    words = "# Zertifizierungsstelle für Prüfzwecke\n".encode("latin-1")
    shake_hands(trusting(words + Made("another").pem + words + chain[0].pem), server)


def test_another_authority_is_not_trusted(server):
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting(Made("another").pem), server)


def test_another_server_name_is_not_trusted(chain, server):
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting(chain[0].pem), server, "10.0.0.2")


@pytest.mark.parametrize("ca", [b"", b"no certificate", "für".encode("latin-1")], ids=["nothing", "words", "no text"])
def test_data_without_a_certificate_is_rejected_and_never_means_the_system_authorities(ca):
    with pytest.raises(InputError, match=r"the certificate authority of .* cannot be used"):
        trusting(ca)
