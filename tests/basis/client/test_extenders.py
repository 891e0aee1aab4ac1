"""Extender calls over HTTP: every connection failure gives a timely error, and no redirect is followed."""

import asyncio
import importlib.util
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from moorage.core.config.configuration import Extender, ExtenderTLSConfig
from moorage.core.extenders.wire import ExtenderError
from moorage.errors import ConfigError
from moorage.framework.effects import Question
from moorage.live.runtime.extender_client import MOST_BYTES, ExtenderClient

_spec = importlib.util.spec_from_file_location("certificates", Path(__file__).with_name("certificates.py"))
certificates = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(certificates)
CA = certificates.CERTIFICATE.encode()


@asynccontextmanager
async def serving(handler, tls=None):
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


async def asked(url, *, timeout_s=2.0, body=b"{}", path="/filter", **fields):
    async with ExtenderClient([Extender(url_prefix=url, **fields)], {}) as client:
        return await client.ask(Question(0, "filter", url + path, body, timeout_s))


def outcome(handler, *, tls=None, **options):
    async def main():
        async with serving(handler, tls) as url:
            try:
                return await asked(url, **options)
            except ExtenderError as error:
                return str(error).replace(url, "URL")

    return asyncio.run(main())


def test_a_request_is_posted_and_the_response_returned_unchanged():
    async def handler(request):
        assert (request.method, request.path, request.content_type) == ("POST", "/scheduler/filter", "application/json")
        assert await request.json() == {"Pod": {}}
        return web.Response(body=b"\x00anything")

    assert outcome(handler, path="/scheduler/filter", body=b'{"Pod": {}}') == b"\x00anything"


STATUSES = {
    "500": lambda: web.Response(status=500, text='{"NodeNames": []}'),
    "429": lambda: web.Response(status=429, headers={"Retry-After": "0"}),
    "201": lambda: web.Response(status=201),
    "302": lambda: web.Response(status=302, headers={"Location": "/other"}),
    "307": lambda: web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"}),
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_other_than_200_is_an_error_and_no_redirect_is_followed(status):
    calls = []

    async def handler(request):
        calls.append(request.path)
        return STATUSES[status]()

    assert outcome(handler) == f"failed filter with extender at URL URL/filter, code {status}"
    assert calls == ["/filter"]


async def _too_long(request):
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        for _ in range(1024):  # a GiB, if it is read completely
            await response.write(b"x" * (1 << 20))
    except ConnectionError:
        pass
    return response


async def _announced_too_long(request):
    response = web.StreamResponse(headers={"Content-Length": str(1 << 30)})
    await response.prepare(request)
    try:
        for _ in range(1024):
            await response.write(b"x" * (1 << 20))
    except ConnectionError:
        pass
    return response


async def _drip(request):
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    return response


async def _silent(request):
    await asyncio.sleep(1)
    return web.Response()


async def _closes_in_the_middle(request):
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"NodeNames": [')
    request.transport.close()
    return response


async def _closes_at_once(request):
    request.transport.abort()
    return web.Response()


LATE = "context deadline exceeded (Client.Timeout"
BAD = {
    "a GiB": (_too_long, 5.0, f"the reply is longer than {MOST_BYTES} bytes"),
    "a GiB, announced": (_announced_too_long, 5.0, f"the reply is longer than {MOST_BYTES} bytes"),
    "a byte now and then": (_drip, 0.2, f'Post "URL/filter": {LATE} or context cancellation while reading body)'),
    "silence": (_silent, 0.1, f'Post "URL/filter": {LATE} exceeded while awaiting headers)'),
    "half a reply": (_closes_in_the_middle, 2.0, "unexpected EOF"),
    "a closed connection": (_closes_at_once, 2.0, 'Post "URL/filter": Server disconnected'),
}


@pytest.mark.parametrize(("handler", "timeout_s", "text"), BAD.values(), ids=BAD)
def test_a_bad_response_is_an_error_in_time(handler, timeout_s, text):
    assert outcome(handler, timeout_s=timeout_s) == text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no.such.host.invalid"], ids=["refused", "no such host"])
def test_an_unreachable_extender_is_an_error(url):
    with pytest.raises(ExtenderError, match=f'Post "{url}/filter": '):
        asyncio.run(asked(url))


def test_a_password_in_the_url_is_used_and_never_shown():
    calls = []

    async def handler(request):
        calls.append(request.headers.get("Authorization"))
        return web.Response(status=401)

    async def main():
        async with serving(handler) as url:
            with pytest.raises(ExtenderError) as caught:
                await asked(url.replace("http://", "http://me:secret@"))
            return str(caught.value)

    text = asyncio.run(main())
    assert "http://me:***@127.0.0.1" in text
    assert "secret" not in text
    assert calls == ["Basic bWU6c2VjcmV0"]


# -- TLS ----------------------------------------------------------------------------------------------------------------------


async def fine(request):
    return web.Response(body=b"fine")


@pytest.fixture
def server_tls(tmp_path):
    file = tmp_path / "both.pem"
    file.write_text(certificates.CERTIFICATE + certificates.KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_the_certificate_is_verified_with_the_given_authority(server_tls, tmp_path):
    file = tmp_path / "ca.pem"
    file.write_bytes(CA)
    for tls in (ExtenderTLSConfig(ca_data=CA), ExtenderTLSConfig(ca_file=str(file)), ExtenderTLSConfig(insecure=True)):
        assert outcome(fine, tls=server_tls, tls_config=tls, enable_https=True) == b"fine"
    assert "certificate verify failed" in outcome(fine, tls=server_tls)
    other = ExtenderTLSConfig(ca_data=CA, server_name="another.example")
    assert "Hostname mismatch" in outcome(fine, tls=server_tls, tls_config=other, enable_https=True)


REFUSED = {
    "no trusted authority": (
        {"url_prefix": "https://e", "enable_https": True},
        (
            'extenders[0].tlsConfig.caFile: Invalid value: "": is not set, so the extender could not be verified; set '
            "caFile or caData, or tlsConfig.insecure: true for kube-scheduler's behavior"
        ),
    ),
    "trusted and not": (
        {"url_prefix": "https://e", "tls_config": ExtenderTLSConfig(insecure=True, ca_data=CA)},
        "specifying a root certificates file with the insecure flag is not allowed",
    ),
    "no such file": (
        {"url_prefix": "https://e", "tls_config": ExtenderTLSConfig(ca_file="/no/such/file")},
        'extenders[0].tlsConfig.caFile: Invalid value: "/no/such/file": No such file or directory',
    ),
    "no authority": (
        {"url_prefix": "https://e", "tls_config": ExtenderTLSConfig(ca_data=b"nonsense")},
        "the certificate authority of https://e cannot be used",
    ),
    "a certificate without its key": (
        {"url_prefix": "https://e", "tls_config": ExtenderTLSConfig(ca_data=CA, cert_data=CA)},
        "a certificate needs its key",
    ),
    "another's key": (
        {
            "url_prefix": "https://e",
            "tls_config": ExtenderTLSConfig(ca_data=CA, cert_data=CA, key_data=certificates.OTHER_KEY.encode()),
        },
        "the key does not belong to it",
    ),
    "no address": (
        {"url_prefix": "extender:8080"},
        'extenders[0].urlPrefix: Invalid value: "extender:8080": must be an address',
    ),
}


@pytest.mark.parametrize(("fields", "text"), REFUSED.values(), ids=REFUSED)
def test_an_extender_that_cannot_be_verified_is_rejected_at_startup(fields, text):
    with pytest.raises(ConfigError) as caught:
        ExtenderClient([Extender(**fields)], {})
    assert text in str(caught.value)
