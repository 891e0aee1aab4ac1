"""The listen address and the accepted host names."""

import socket

import pytest

from moorage.basis.serving.listen_addresses import Address, address_of, is_loopback
from moorage.errors import ConfigError

GIVEN = {  # flags, where it listens, by which names it is known, how its host may be named, where it is dial_address
    "nothing": (("127.0.0.1",), Address("127.0.0.1", ("127.0.0.1",)), ["127.0.0.1"], "https://127.0.0.1:1"),
    "an address": (("10.1.2.3",), Address("10.1.2.3", ("10.1.2.3",)), ["10.1.2.3"], "https://10.1.2.3:1"),
    "one of version 6": (("fd00::0001",), Address("fd00::1", ("fd00::1",)), ["[fd00::1]"], "https://[fd00::1]:1"),
    "additional names": (
        ("10.1.2.3", ["Sim.Example.org", "[fd00::2]", "sim.example.org"]),
        Address("10.1.2.3", ("10.1.2.3", "sim.example.org", "fd00::2")),
        ["10.1.2.3", "sim.example.org", "[fd00::2]"],
        "https://10.1.2.3:1",
    ),
}


@pytest.mark.parametrize(("flags", "address", "hosts", "url"), GIVEN.values(), ids=GIVEN)
def test_an_address_is_among_the_names(flags, address, hosts, url):
    assert address_of(*flags) == address
    assert [*address.hosts] == hosts
    assert address.url(1) == url


@pytest.mark.parametrize(("bind", "url"), [("0.0.0.0", "https://127.0.0.1:1"), ("::", "https://[::1]:1")])
def test_an_unspecified_address_includes_the_machines_names(bind, url, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Here.example.org")
    address = address_of(bind, ["sim"])
    assert (address.listens, address.names[0], address.names[-1]) == (bind, "here.example.org", "sim")
    assert (address.is_open, address.url(1)) == (True, url)
    monkeypatch.setattr(socket, "gethostname", lambda: "no_name!")
    assert "no_name!" not in address_of(bind).names


REFUSED = {
    "a name to listen on": (
        ("localhost",),
        "--bind-address: 'localhost' is not an IP address; use 127.0.0.1, 0.0.0.0 for all, or",
    ),
    "a name with a blank": (("127.0.0.1", ["a b"]), "--tls-san: 'a b' is neither a DNS name nor an IP address"),
    "a URL": (("127.0.0.1", ["https://x"]), "--tls-san: 'https://x' is neither"),
}


@pytest.mark.parametrize(("flags", "told"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_address_is_rejected(flags, told):
    with pytest.raises(ConfigError) as caught:
        address_of(*flags)
    assert str(caught.value).startswith(told)


def test_loopback_addresses():
    assert [one for one in ("127.0.0.1", "127.8.8.8", "::1", "localhost") if not is_loopback(one)] == []
    assert [one for one in ("0.0.0.0", "::", "10.0.0.1", "fd00::1", "example.org", "") if is_loopback(one)] == []
