"""The cluster's certificates: created once, reused, and valid for what they state."""

import datetime
import json
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.documents.http_messages import User
from moorage.basis.serving.certificate_authority import ADMIN, SCHEDULER, make_authority
from moorage.errors import ConfigError


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_created_once_and_private(tmp_path):
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


def test_another_name_needs_a_new_certificate_of_the_same_authority(tmp_path):
    before = make_authority(tmp_path)
    old = contents(tmp_path)
    assert make_authority(tmp_path, ["api.example", "10.0.0.1"]) == before
    assert {name for name, content in contents(tmp_path).items() if content != old[name]} == {"server.crt", "server.key"}
    names = x509.load_pem_x509_certificate(contents(tmp_path)["server.crt"]).extensions
    shown = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example" in shown.get_values_for_type(x509.DNSName)
    assert "10.0.0.1" in [str(one) for one in shown.get_values_for_type(x509.IPAddress)]


def test_a_client_certificate_contains_the_user_and_nothing_else(tmp_path):
    authority = make_authority(tmp_path)
    issued = authority.issue(User("jane", ("dev", "ops")), datetime.timedelta(hours=1))
    held = x509.load_pem_x509_certificate(issued.certificate)
    assert held.subject.rfc4514_string() == "CN=jane,O=ops,O=dev"
    held.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert not held.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_kubeconfig_contains_a_certificate_and_the_authority(tmp_path):
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


FILES = ["ca.key", "ca.crt", "sa.key", "server.key", "server.crt", "admin.token", "front-proxy-ca.crt"]


def another_key(form=serialization.NoEncryption()):  # noqa: B008 - it never changes
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form)


DAMAGE = {
    "empty": lambda whole: b"", "cut": lambda whole: whole[: len(whole) // 2], "nonsense": lambda whole: b"nonsense\n",
    "zeroes": lambda whole: bytes(len(whole)), "no ASCII": lambda whole: "é".encode() * 100,
    "another's key": lambda whole: another_key(), "a key with a password": lambda whole: another_key(PASSWORD),
}  # fmt: skip
PASSWORD = serialization.BestAvailableEncryption(b"geheim")
#: What takes the place of a key or a token and is as good.
AS_GOOD = {("sa.key", "another's key"), ("server.key", "another's key"), ("admin.token", "cut")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    make_authority(folder)
    return contents(folder)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_named(tmp_path, whole, name, how):
    for one, content in whole.items():
        (tmp_path / one).write_bytes(DAMAGE[how](content) if one == name else content)
        (tmp_path / one).chmod(0o600)
    if (name, how) in AS_GOOD:
        make_authority(tmp_path)
        return
    with pytest.raises(ConfigError, match=f"{name}: it is damaged .*; delete {tmp_path} to") as refusal:
        make_authority(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_path_that_is_a_file_is_rejected(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: expected a folder, this is something else"):
        make_authority(tmp_path / "file")


def test_a_server_certificate_of_another_authority_is_replaced(tmp_path, whole):
    make_authority(tmp_path)
    (tmp_path / "server.crt").write_bytes(whole["server.crt"])
    (tmp_path / "server.key").write_bytes(whole["server.key"])
    make_authority(tmp_path).tls()
    assert contents(tmp_path)["server.crt"] != whole["server.crt"]


@pytest.mark.parametrize("name", FILES)
def test_readable_files_are_made_private_and_reported(tmp_path, name):
    said = []
    before = make_authority(tmp_path, warn=said.append)
    (tmp_path / name).chmod(0o640)
    assert make_authority(tmp_path, warn=said.append) == before
    assert said == [f"{tmp_path}/{name}: others could read it (mode 0640); now only its owner can"]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    tmp_path.chmod(0o777)
    make_authority(tmp_path, warn=said.append)
    assert said[1:] == [f"{tmp_path}: others could change it (mode 0777); now only its owner can"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", FILES)
def test_links_are_not_written_through(tmp_path, name):
    (tmp_path / "target").write_text("precious")
    folder = tmp_path / "pki"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=f"{name}: expected a file, this is a symbolic link; use the target of the link"):
        make_authority(folder)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "other").symlink_to(folder)
    with pytest.raises(ConfigError, match="other: expected a folder, this is a symbolic link"):
        make_authority(tmp_path / "other")
    (tmp_path / "kubeconfig").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match="kubeconfig: expected a file, this is a symbolic link"):
        make_authority(tmp_path / "good").write_kubeconfig(tmp_path / "kubeconfig", 1)
    assert (tmp_path / "target").read_text() == "precious"


def test_the_server_requires_tls_1_2(tmp_path):
    context = make_authority(tmp_path).tls()
    assert (context.minimum_version, context.verify_mode) == (ssl.TLSVersion.TLSv1_2, ssl.CERT_OPTIONAL)
    assert ADMIN.groups == ("system:masters",)
