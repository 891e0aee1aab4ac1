"""What the scheduler serves with, over real sockets: made, given, rotated, chosen by name; and who may vouch for callers."""

import asyncio
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession, TCPConnector
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moorage.basis.serving import connections as accepting
from moorage.errors import InputError
from moorage.live.runtime.attempt_metrics import SILENT
from moorage.live.server.authentication import RequestAuthenticator
from moorage.live.server.authorization import OpenPaths, RequestAuthorizer
from moorage.live.server.certificates import (
    NamedPair,
    Pair,
    ServingTls,
    TlsRules,
    authorities,
    given_or_made,
    named_pair,
    self_signed,
)
from moorage.live.server.endpoints import ProgramInfo, Served, make_app
from moorage.live.server.health import Health
from moorage.live.server.listening import listen, serving
from moorage.live.server.plugin_metrics import MetricRegistry

NOW = datetime.now(UTC)
PEM = serialization.Encoding.PEM


def issued(common, authority=None, *, names=("localhost",), ca=False, groups=()):
    """Return a certificate and its key; ``authority`` is such a pair."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    parts += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name(parts)
    signer, signed_by = (key, subject) if authority is None else (authority[1], authority[0].subject)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate, key


def pair(certificate, key):
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(PEM), private)


def written(folder, name, made):
    files = NamedPair(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    (folder / f"{name}.crt").write_bytes(made.certificate)
    (folder / f"{name}.key").write_bytes(made.key)
    return files


async def _handshake(server_context, client_context, name):
    seen = asyncio.get_running_loop().create_future()

    async def accept(reader, writer):
        seen.set_result(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.write(b"x")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server_context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context, server_hostname=name)
        assert await reader.read() == b"x"
        shown = writer.get_extra_info("ssl_object")
        certificate = x509.load_der_x509_certificate(shown.getpeercert(binary_form=True))
        writer.close()
        return certificate, shown.version(), shown.cipher()[0], await seen


def handshake(tls, *, name="localhost", client=None, trusts=None, client_folder=None, **limits):
    """Connect once. Returns the server's certificate, TLS version, cipher suite, and the client's certificate it took."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusts is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=trusts.decode())
    for field, value in limits.items():
        setattr(context, field, value)
    if client is not None:
        path = client_folder / "client.pem"
        path.write_bytes(client.certificate + client.key)
        context.load_cert_chain(path)
    return asyncio.run(_handshake(tls.context, context, name))


def common_name(certificate):
    return certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


def test_a_self_signed_certificate_is_created_with_its_own_ca():
    made = self_signed("10.1.2.3", NOW)
    leaf, root = x509.load_pem_x509_certificates(made.certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.1.2.3"]
    shown, version, _, _ = handshake(ServingTls(TlsRules(), made), trusts=root.public_bytes(PEM))
    assert common_name(shown).startswith("localhost@")
    assert version == "TLSv1.3"
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == timedelta(days=365)


def test_a_created_certificate_is_reused_from_its_folder(tmp_path):
    folder = tmp_path / "certs"
    first, files = given_or_made("", "", str(folder), "0.0.0.0", NOW)
    again, _ = given_or_made("", "", str(folder), "0.0.0.0", NOW)
    assert first == again
    assert files.certificate == str(folder / "kube-scheduler.crt")
    assert os.stat(files.key).st_mode & 0o777 == 0o600
    assert given_or_made("", "", "", "0.0.0.0", NOW)[1] is None


MISSING = {
    "a certificate without a key": ("a", "", "must be given together"),
    "a key without a certificate": ("", "a", "must be given together"),
    "a file that is not there": ("/nowhere/a.crt", "/nowhere/a.key", "No such file"),
}


@pytest.mark.parametrize(("certificate", "key", "text"), MISSING.values(), ids=MISSING)
def test_unusable_certificate_files_are_reported(certificate, key, text):
    with pytest.raises(InputError, match=text):
        given_or_made(certificate, key, "", "127.0.0.1", NOW)


def test_a_key_of_another_certificate_is_reported():
    one, other = pair(*issued("one")), pair(*issued("other"))
    with pytest.raises(InputError, match="the private key does not match it"):
        ServingTls(TlsRules(), Pair(one.certificate, other.key))


def test_a_rotated_certificate_is_served_to_new_connections(tmp_path):
    files = written(tmp_path, "serving", pair(*issued("first")))
    tls = ServingTls(TlsRules(), *given_or_made(files.certificate, files.key, "", "127.0.0.1", NOW))
    assert common_name(handshake(tls)[0]) == "first"
    assert tls.reload() is False
    written(tmp_path, "serving", pair(*issued("second")))
    assert tls.reload() is True
    assert common_name(handshake(tls)[0]) == "second"
    (tmp_path / "serving.key").write_text("nonsense")
    with pytest.raises(InputError):
        tls.reload()
    assert common_name(handshake(tls)[0]) == "second"


NAMES = {"a name": ("one.test", "one"), "a wildcard": ("x.wild.test", "wild"), "no name of ours": ("other.test", "default")}


@pytest.mark.parametrize(("asked", "served"), NAMES.values(), ids=NAMES)
def test_the_certificate_is_chosen_by_sni(tmp_path, asked, served):
    one = written(tmp_path, "one", pair(*issued("one", names=("one.test",))))
    wild = written(tmp_path, "wild", pair(*issued("wild")))
    named = [one, NamedPair(wild.certificate, wild.key, ("*.wild.test",))]
    tls = ServingTls(TlsRules(), pair(*issued("default")), None, named)
    assert common_name(handshake(tls, name=asked)[0]) == served


def test_client_certificates_are_verified_by_the_current_cas(tmp_path):
    first, second = issued("first-ca", ca=True), issued("second-ca", ca=True)
    client = pair(*issued("client-a", first))
    tls = ServingTls(TlsRules(), pair(*issued("server")))
    assert handshake(tls, client=client, client_folder=tmp_path)[3] is None
    tls.trust(first[0].public_bytes(PEM).decode())
    assert common_name(x509.load_der_x509_certificate(handshake(tls, client=client, client_folder=tmp_path)[3])) == "client-a"
    assert handshake(tls)[3] is None
    tls.trust(second[0].public_bytes(PEM).decode())
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        handshake(tls, client=client, client_folder=tmp_path)
    with pytest.raises(InputError):
        tls.trust("nonsense")
    other = pair(*issued("another", second))
    assert common_name(x509.load_der_x509_certificate(handshake(tls, client=other, client_folder=tmp_path)[3])) == "another"


def test_old_tls_versions_are_rejected():
    tls = ServingTls(TlsRules(min_version="VersionTLS13"), pair(*issued("server")))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(tls, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert handshake(tls)[1] == "TLSv1.3"


def test_only_the_configured_cipher_suites_are_served():
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    tls = ServingTls(TlsRules(suites=suites, curves=("23",)), pair(*issued("server")))
    _, version, cipher, _ = handshake(tls, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert (version, cipher) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")


RULES = {
    "an unknown version": (TlsRules(min_version="TLS1.2"), 'unknown tls version "TLS1.2"'),
    "an unknown suite": (TlsRules(suites=("X",)), "Cipher suite X not supported or doesn't exist"),
    "an unknown curve": (TlsRules(curves=("1",)), "curve preference 1 is not supported"),
}


@pytest.mark.parametrize(("rules", "text"), RULES.values(), ids=RULES)
def test_invalid_tls_settings_are_rejected(rules, text):
    with pytest.raises(InputError, match=text.replace("'", ".")):
        ServingTls(rules, pair(*issued("server")))


SNI = {
    "two files": ("a.crt,a.key", NamedPair("a.crt", "a.key")),
    "two files and names": ("a.crt, a.key:*.x.test,y.test", NamedPair("a.crt", "a.key", ("*.x.test", "y.test"))),
    "one file": ("a.crt", None),
    "no names": ("a.crt,a.key:", None),
}


@pytest.mark.parametrize(("text", "found"), SNI.values(), ids=SNI)
def test_certificates_for_names(text, found):
    if found is None:
        with pytest.raises(InputError, match="--tls-sni-cert-key"):
            named_pair(text)
    else:
        assert named_pair(text) == found


# -- served -------------------------------------------------------------------------------------------------------------


def served(tls, authenticator=None, **limits):
    """Return a context of the port where a server with one page, for administrators, listens."""
    registry = MetricRegistry().with_others()
    page = Served(
        health=Health({"healthz": [], "livez": [], "readyz": []}, SILENT), metrics=registry,
        counted=MetricRegistry(), slis=registry,
        pod_metrics=lambda: None, configuration=dict, flags={}, program=ProgramInfo("", "", "", NOW, ()), set_verbosity=print,
    )  # fmt: skip
    authorizer = RequestAuthorizer(None, lambda: 0.0, OpenPaths(("/healthz",)))
    app = make_app(page, authenticator or RequestAuthenticator(None, lambda: 0.0), authorizer, SILENT)
    return serving(app, listen("127.0.0.1", 0), tls.context, **limits)


def test_a_client_certificate_opens_protected_paths(tmp_path):
    authority = issued("clients", ca=True)
    tls = ServingTls(TlsRules(), pair(*issued("server")))
    tls.trust(authority[0].public_bytes(PEM).decode())
    authenticator = RequestAuthenticator(None, lambda: 0.0, authorities=(authority[0],))
    files = {name: written(tmp_path, name, pair(*issued(name, authority, groups=(group,))))
             for name, group in (("admin", "system:masters"), ("reader", "readers"))}  # fmt: skip

    async def ask(port, who):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if who is not None:
            context.load_cert_chain(files[who].certificate, files[who].key)
        async with (
            ClientSession(connector=TCPConnector(ssl=context)) as session,
            session.get(f"https://127.0.0.1:{port}/flagz") as answer,
        ):
            return answer.status, await answer.text()

    async def main():
        async with served(tls, authenticator) as port:
            return [await ask(port, who) for who in ("admin", "reader", None)]

    admin, reader, anonymous = asyncio.run(main())
    assert admin[0] == 200
    assert (reader[0], 'User \\"reader\\" cannot get path' in reader[1]) == (403, True)
    assert (anonymous[0], "system:anonymous" in anonymous[1]) == (403, True)


async def _gone_after(port, tls, send):
    """Connect, send something, and say whether the server then closes the connection before its usual patience of 10 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(send)
    try:
        async with asyncio.timeout(8):
            return await reader.read() == b""
    except (ConnectionError, ssl.SSLError):
        return True
    except TimeoutError:
        return False
    finally:
        writer.close()


SLOW = {
    "says nothing in TLS": (True, b""),
    "never ends its head": (True, b"GET / HTTP/1.1\r\nA: b"),
    "shakes no hands": (False, b""),
}


@pytest.mark.parametrize(("shakes_hands", "send"), SLOW.values(), ids=SLOW)
def test_slow_clients_are_disconnected(shakes_hands, send):
    async def main():
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        async with served(ServingTls(TlsRules(), pair(*issued("server"))), patience_s=0.2) as port:
            return await _gone_after(port, client if shakes_hands else None, send)

    assert asyncio.run(main())


def test_the_oldest_idle_connection_is_closed_at_the_connection_limit(monkeypatch):
    monkeypatch.setattr(accepting, "MIN_UNUSED_S", 0.1)

    async def main():
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        async with served(ServingTls(TlsRules(), pair(*issued("server"))), most=2) as port, asyncio.timeout(10):
            first, second, third = [await asyncio.open_connection("127.0.0.1", port, ssl=client) for _ in range(3)]
            assert await first[0].read() == b""
            third[1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in await third[0].readline()
            assert not second[0].at_eof()
            for _, writer in (first, second, third):
                writer.close()

    asyncio.run(main())


def test_a_dual_stack_address_is_listened_on():
    opened = listen("0.0.0.0", 0)
    try:
        port = opened.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
        if socket.has_dualstack_ipv6():
            socket.create_connection(("::1", port), timeout=2).close()
    finally:
        opened.close()


def test_a_port_can_be_shared():
    first = listen("127.0.0.1", 0, share_port=True)
    try:
        port = first.getsockname()[1]
        listen("127.0.0.1", port, share_port=True).close()
        with pytest.raises(InputError, match="address already in use"):
            listen("127.0.0.1", port)
    finally:
        first.close()


def test_a_bundle_without_certificates_is_reported():
    with pytest.raises(InputError, match="cannot read CA certificates"):
        authorities(b"nothing", "ca.pem")
