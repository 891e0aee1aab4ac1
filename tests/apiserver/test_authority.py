"""The cluster's own certificates: made once, used again, and good for what they say."""

import datetime
import json
import ssl
import stat

import pytest
from cryptography import x509

from moorage.apiserver.access.authority import ADMIN, SCHEDULER, make_authority
from moorage.apiserver.vocabulary.users import User
from moorage.errors import ConfigError


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_made_once_and_only_for_its_owner(tmp_path):
    folder = tmp_path / "pki"
    authority = make_authority(folder)
    assert sorted(contents(folder)) == [
        "admin.token",
        "ca.crt",
        "ca.key",
        "front-proxy-ca.crt",
        "sa.key",
        "server.crt",
        "server.key",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held = contents(folder)
    assert make_authority(folder) == authority
    assert contents(folder) == held


def test_another_name_needs_another_certificate_of_the_same_authority(tmp_path):
    before = make_authority(tmp_path)
    old = contents(tmp_path)
    assert make_authority(tmp_path, ["api.example", "10.0.0.1"]) == before
    assert {name for name, content in contents(tmp_path).items() if content != old[name]} == {"server.crt", "server.key"}
    names = x509.load_pem_x509_certificate(contents(tmp_path)["server.crt"]).extensions
    shown = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example" in shown.get_values_for_type(x509.DNSName)
    assert "10.0.0.1" in [str(one) for one in shown.get_values_for_type(x509.IPAddress)]


def test_a_client_certificate_says_who_it_is_and_no_more_than_that(tmp_path):
    authority = make_authority(tmp_path)
    issued = authority.issue(User("jane", ("dev", "ops")), datetime.timedelta(hours=1))
    held = x509.load_pem_x509_certificate(issued.certificate)
    assert held.subject.rfc4514_string() == "CN=jane,O=ops,O=dev"
    held.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert not held.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_kubeconfig_holds_a_certificate_and_the_authority(tmp_path):
    authority = make_authority(tmp_path / "pki")
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    authority.write_kubeconfig(path, 6443, SCHEDULER, host="::1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = json.loads(path.read_text())
    assert written["clusters"][0]["cluster"]["server"] == "https://[::1]:6443"
    assert written["users"][0]["name"] == "system:kube-scheduler"
    assert sorted(written["users"][0]["user"]) == ["client-certificate-data", "client-key-data"]


def test_what_is_damaged_is_named(tmp_path):
    make_authority(tmp_path)
    (tmp_path / "server.crt").write_text("nonsense")
    with pytest.raises(ConfigError, match="is damaged"):
        make_authority(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        make_authority(tmp_path / "file")


def test_the_server_side_asks_for_tls_1_2(tmp_path):
    context = make_authority(tmp_path).tls()
    assert (context.minimum_version, context.verify_mode) == (ssl.TLSVersion.TLSv1_2, ssl.CERT_OPTIONAL)
    assert ADMIN.groups == ("system:masters",)
