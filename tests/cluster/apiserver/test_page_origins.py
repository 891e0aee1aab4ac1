"""Requests of browsers: only pages of this server's own origin, scheme's default port and all, may send them."""

import pytest

from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator

ORIGINS = {
    "no origin": ("127.0.0.1:8443", {}, True),
    "the own origin": ("127.0.0.1:8443", {"Origin": "https://127.0.0.1:8443"}, True),
    "the own origin in capitals": ("LOCALHOST:8443", {"Origin": "https://Localhost:8443"}, True),
    "the default port": ("localhost", {"Origin": "https://localhost:443"}, True),
    "another port": ("127.0.0.1:8443", {"Origin": "https://127.0.0.1:3000"}, False),
    "no port": ("127.0.0.1:8443", {"Origin": "https://127.0.0.1"}, False),
    "another name of this machine": ("127.0.0.1:8443", {"Origin": "https://localhost:8443"}, False),
    "another host": ("127.0.0.1:8443", {"Origin": "https://evil.example:8443"}, False),
    "another scheme": ("127.0.0.1:8443", {"Origin": "file://127.0.0.1:8443"}, False),
    "nothing": ("127.0.0.1:8443", {"Origin": "null"}, False),
    "the same site from the own origin": (
        "127.0.0.1:8443", {"Origin": "https://127.0.0.1:8443", "Sec-Fetch-Site": "same-site"}, True,
    ),
    "the same site from another port": (
        "127.0.0.1:8443", {"Origin": "https://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"}, False,
    ),
    "the same site, which does not say from where": ("127.0.0.1:8443", {"Sec-Fetch-Site": "same-site"}, False),
    "another site": ("127.0.0.1:8443", {"Sec-Fetch-Site": "cross-site"}, False),
    "another site that names this origin": (
        "127.0.0.1:8443", {"Origin": "https://127.0.0.1:8443", "Sec-Fetch-Site": "cross-site"}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("host", "headers", "is_served"), ORIGINS.values(), ids=ORIGINS)
def test_who_may_ask(host, headers, is_served):
    guard = Authenticator({})
    if is_served:
        guard.check_source({"Host": host, **headers})
        return
    with pytest.raises(ApiError) as error:
        guard.check_source({"Host": host, **headers})
    assert error.value.code == 403
