"""The library's face: what ``import moorage`` gives, and what it does not import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import moorage
from moorage.testing.builders import a_node, a_pod

POD = a_pod("web", containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]).pod
NODE = a_node("n1", allocatable={"cpu": "2", "memory": "4Gi", "pods": 10})


def test_objects_in_a_run_out():
    run = moorage.simulate([NODE, POD])
    assert [(pod.name, pod.state, pod.node) for pod in run.pods] == [("web", "Placed", "n1")]


def test_manifests_in_a_run_out(tmp_path):
    (tmp_path / "all.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 2, memory: 4Gi, pods: 10}}\n---\n"
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
        "spec:\n  replicas: 3\n  selector: {matchLabels: {a: b}}\n"
        "  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n"
    )
    _, run = moorage.simulate_cluster(moorage.read([str(tmp_path)]), moorage.Options())
    assert len(run.in_state("Placed")) == 2
    assert run.in_state("Pending")[0].workload == "Deployment/web"


NOTES = {  # configuration, plugins, what a note says
    "an idle plugin": (b"", "plugin Idle was loaded, but no profile enables it"),
    "extenders": (b"extenders: [{urlPrefix: 'http://127.0.0.1:1/', filterVerb: f}]\n", "1 extender skipped, as requested"),
}


@pytest.mark.parametrize(("config", "says"), NOTES.values(), ids=NOTES)
def test_settings_without_effect_are_reported(config, says):
    class Idle:
        name = "Idle"

        def filter_node(self, pod, node):
            return None

    head = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    run = moorage.simulate([NODE, POD], moorage.Options(config=head + config, plugins=(Idle,), skip_extenders=True))
    assert any(says in note.text for note in run.notes)


def test_importing_the_library_imports_nothing_heavy():
    check = "import sys, moorage; print(sorted({'numpy', 'msgspec', 'yaml', 'click', 'rich', 'aiohttp'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_questions_about_files_load_no_http_client():
    check = "import sys, moorage.interfaces.cli.questions.explain; print('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'schedule_everything'"):
        moorage.schedule_everything  # noqa: B018
