"""A client certificate and its key are read again from their files, and only a pair that belongs together is used."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from moorage.basis.client.credentials import FixedCredentials, Identity, PairFiles, TokenFile
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.basis.serving.certificate_authority import make_root, private_pem
from moorage.live.runtime.attempt_metrics import Log
from moorage.live.server.credential_expiry import Lifetime, lifetimes, warning, watch_expiry
from moorage.testing.virtual_time import run_virtually

DAY, HOUR, MINUTE = 86400, 3600, 60


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def made(days=1.0):
    """Return a certificate that is valid for so many days, and its key."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    key, certificate = make_root("client", (now, now + timedelta(days=days)))
    return certificate, private_pem(key)


def identity(credentials):
    return asyncio.run(credentials.identity())


@pytest.fixture
def pair(tmp_path):
    """A clock, the files of a pair, and its credentials as a kubeconfig gives them."""
    certificate, key = made()
    (tmp_path / "c").write_bytes(certificate)
    (tmp_path / "k").write_bytes(key)
    user = {"client-certificate": "c", "client-key": "k"}
    config = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}], "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}], "users": [{"name": "x", "user": user}],
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    clock = Clock()
    found = read_kubeconfig([tmp_path / "config"], must_exist=True)
    endpoint = found.endpoint(ClientEnvironment({}, clock, lambda: datetime.now(UTC)))
    return clock, tmp_path, endpoint.credentials


def test_a_new_pair_is_used_after_a_minute(pair):
    clock, folder, credentials = pair
    first = identity(credentials)
    certificate, key = made()
    (folder / "c").write_bytes(certificate)
    (folder / "k").write_bytes(key)
    clock.now = 59.0
    assert identity(credentials) == first
    clock.now = 61.0
    assert identity(credentials) == Identity("", certificate, key) != first


def test_a_new_pair_is_used_at_once_after_a_401(pair):
    _, folder, credentials = pair
    certificate, key = made()
    (folder / "c").write_bytes(certificate)
    (folder / "k").write_bytes(key)
    credentials.invalidate()
    assert identity(credentials) == Identity("", certificate, key)


HALVES = {
    "a new certificate beside the old key": lambda folder: (folder / "c").write_bytes(made()[0]),
    "a new key beside the old certificate": lambda folder: (folder / "k").write_bytes(made()[1]),
    "no certificate": lambda folder: (folder / "c").unlink(),
    "an empty key": lambda folder: (folder / "k").write_bytes(b""),
    "something else": lambda folder: (folder / "c").write_bytes(b"-----BEGIN nothing-----"),
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_the_last_pair_is_used_while_the_files_do_not_belong_together(pair, half):
    clock, folder, credentials = pair
    first = identity(credentials)
    half(folder)
    clock.now = 61.0
    assert identity(credentials) == first
    certificate, key = made()
    (folder / "c").write_bytes(certificate)
    (folder / "k").write_bytes(key)
    clock.now = 122.0
    assert identity(credentials) == Identity("", certificate, key)


def test_a_pair_beside_a_token_file_is_read_again_too(tmp_path):
    certificate, key = made()
    clock = Clock()
    (tmp_path / "t").write_text("one")
    (tmp_path / "c").write_bytes(certificate)
    files = PairFiles(tmp_path / "c", None, clock, Identity("", certificate, key))
    credentials = TokenFile(tmp_path / "t", clock, pair=files)
    assert identity(credentials) == Identity("one", certificate, key)
    (tmp_path / "t").write_text("two")
    clock.now = 61.0
    assert identity(credentials) == Identity("two", certificate, key)


YEAR = Lifetime("client certificate", 0.0, 365.0 * DAY)
TOKEN = Lifetime("bearer token", 0.0, float(HOUR))
WARNINGS = {
    "a certificate two days before": (YEAR, 2 * DAY, ""),
    "a certificate a day before": (YEAR, DAY, "a day"),
    "a certificate an hour before": (YEAR, HOUR, "an hour"),
    "a certificate a minute before": (YEAR, MINUTE, "a minute"),
    "a certificate that has expired": (YEAR, 0, "expired"),
    "a certificate that expired long ago": (YEAR, -DAY, "expired"),
    "a new token of an hour": (TOKEN, HOUR, ""),
    "a token of an hour that its kubelet should have renewed": (TOKEN, HOUR / 10, ""),
    "a token of an hour a minute before": (TOKEN, MINUTE, "a minute"),
}


@pytest.mark.parametrize(("life", "left_s", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_the_expiry_is_told_as_long_before_as_a_renewal_takes(life, left_s, expected):
    assert warning(life, life.ends - left_s) == expected


def test_the_lifetimes_are_those_of_the_certificate_and_the_token():
    claims = base64.urlsafe_b64encode(json.dumps({"iat": 10, "exp": 3610}).encode()).decode().rstrip("=")
    certificate, key = made(days=2)
    begins = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    found = [*lifetimes(Identity(f"a.{claims}.b", certificate, key))]
    assert found == [Lifetime("client certificate", begins, begins + 2 * DAY), Lifetime("bearer token", 10.0, 3610.0)]
    for token in ("", "opaque", "a.b.c", "a.e30.c", "a.%%%.c", f"a.{base64.urlsafe_b64encode(b'[1]').decode()}.c"):
        assert [*lifetimes(Identity(token))] == []


def test_each_time_is_logged_once():
    lines = []

    class Lines(Log):
        def warning(self, message, **facts):
            lines.append((message, facts["credential"]))

    async def main():
        loop = asyncio.get_running_loop()
        certificate, key = made(days=30)
        ends = datetime(2026, 1, 31, tzinfo=UTC).timestamp()
        credentials = FixedCredentials(Identity("", certificate, key))
        watching = asyncio.ensure_future(watch_expiry(credentials, Lines(), lambda: ends - DAY - HOUR + loop.time()))
        await asyncio.sleep(DAY + 2 * HOUR)
        watching.cancel()

    run_virtually(main())
    texts = [f"Credentials expire in less than {when}" for when in ("a day", "an hour", "a minute")]
    assert lines == [(text, "client certificate") for text in [*texts, "Credentials have expired"]]
