"""Faults in the syntax of configurations and kubeconfigs show the lines around them with a caret, but never a secret."""

from __future__ import annotations

import pytest

from moorage.api.reading.manifests import read_documents
from moorage.basis.client.kubeconfig import without_secrets
from moorage.errors import InputError

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: [50
leaderElection: {}
"""
CONFIG_TOLD = """\
:6: did not find expected ',' or ']', while parsing a flow sequence that starts on line 5
  5 |   percentageOfNodesToScore: [50
  6 | leaderElection: {}
    | ^
"""
POLICY = '{"kind": "Policy", "apiVersion": "v1",\n "predicates": [{"name": "PodFitsResources"}\n'
POLICY_TOLD = """\
:2: unexpected end of JSON input: the file ends after 84 bytes, 2 brackets still open; it may have been cut off while it was \
written or copied
  1 | {"kind": "Policy", "apiVersion": "v1",
  2 |  "predicates": [{"name": "PodFitsResources"}
    |                                             ^
"""


@pytest.mark.parametrize(("text", "told"), [(CONFIG, CONFIG_TOLD), (POLICY, POLICY_TOLD)], ids=["YAML", "JSON"])
@pytest.mark.parametrize(
    "command", [["config", "validate"], ["config", "show"], ["simulate", "-f", "examples/demo", "--config"]]
)
def test_a_configuration_shows_the_lines_around_a_fault(moorage, tmp_path, text, told, command):
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    ran = moorage(*command, file)
    assert ran.status == 1
    assert ran.err.removeprefix("error: ") == f"{file}{told}"


def test_a_configuration_with_an_unrendered_template(moorage, tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIG.replace("[50", "{{ .Values.percentage }}"))
    assert "render it with helm template first" in moorage("config", "validate", file).err


KUBECONFIG = """\
apiVersion: v1
kind: Config
users:
- name: admin
  user:
    token:s3cret
    password: s3cret
"""


def test_a_kubeconfig_shows_lines_without_their_secrets(moorage, tmp_path):
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    assert moorage("dump", "--kubeconfig", file).err == (
        f"error: {file}:7: mapping values are not allowed in this context\n"
        "  6 |     token: …\n  7 |     password: …\n    |     ^\n"
    )


@pytest.mark.parametrize("at", range(1, 16))
@pytest.mark.parametrize("mistake", ["[", "'", "\t- x", "{{ .Values.x }}", ": :"])
def test_no_message_about_a_kubeconfig_has_a_secret(at, mistake, tmp_path, moorage):
    lines = """\
apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: "https://me:s3cret@10.0.0.1:6443", certificate-authority-data: s3cret}
contexts:
- {name: d, context: {cluster: c, user: u}}
users:
- name: u
  user:
    client-key-data: |
      s3cret
    exec:
      args: [--secret, s3cret]
      env: [{name: TOKEN, value: s3cret}]""".splitlines()
    lines.insert(at, mistake)
    file = tmp_path / "config"
    file.write_text("\n".join(lines))
    ran = moorage("dump", "--kubeconfig", file)
    assert ran.status == 1
    assert "s3cret" not in ran.err


HIDDEN = {
    "- name: admin": "- name: admin",
    "    server: https://10.0.0.1": "    server: https://10.0.0.1",
    "    token: abc": "    token: …",
    "    token:abc": "    token: …",
    '{"name": "u", "user": {"token":"abc"}}': '{"name": "u", "user": {"token": …',
    "  AbC+/=": "  …",
    "  - --token=abc": "  - …",
    "": "",
}


@pytest.mark.parametrize(("line", "shown"), HIDDEN.items(), ids=HIDDEN)
def test_what_is_shown_of_a_line(line, shown):
    assert without_secrets(line) == shown


def test_faults_of_readers_alone_have_one_line():
    with pytest.raises(InputError) as caught:
        list(read_documents(CONFIG, "f"))
    assert "\n" not in str(caught.value)
