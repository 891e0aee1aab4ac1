"""The release before the default, made the default: what users of the default release have is not bound to its name.

The default is fixed when modules are loaded, so a process of its own decides with the other one.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from moorage.api.releases import EARLIER, RELEASES, TODAY
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.upgrade import change_texts, rules_between

#: Makes the release that the first argument names the default, and prints what the functions of this module return.
SCRIPT = """
import importlib.util, json, pathlib, sys
spec = importlib.util.find_spec("moorage.api.releases")
source = pathlib.Path(spec.origin).read_text()
line = f'TODAY: Final = "{sys.argv[2]}"'
assert line in source
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
exec(compile(source.replace(line, line.replace(sys.argv[2], sys.argv[1])), spec.origin, "exec"), module.__dict__)
from tests.api.releases import test_another_default as tests
assert module.TODAY == tests.TODAY == sys.argv[1]
print(json.dumps([tests.plugins_of_earlier_documents(), tests.changes(sys.argv[2], sys.argv[1])]))
"""
EARLIER_DOCUMENTS = {
    "v1beta3": "{multiPoint: {enabled: [{name: NodeAffinity, weight: 3}]}}",
    "v1beta2": "{score: {enabled: [{name: VolumeBinding}], disabled: [{name: ImageLocality}]}}",
    "v1": "{score: {disabled: [{name: ImageLocality}]}}",
}


def plugins_of_earlier_documents():
    """Return the Score plugins of documents of earlier versions, as the default release reads them."""
    head = "apiVersion: kubescheduler.config.k8s.io/{}\nkind: KubeSchedulerConfiguration\nprofiles: [{{plugins: {}}}]"
    texts = [head.format(version, plugins) for version, plugins in EARLIER_DOCUMENTS.items()]
    found = [load_source(ConfigSource(text.encode(), "config.yaml")) for text in texts]
    return [sorted(one.profiles[0].points["score"]) for one in found]


def changes(one, other):
    """Return what changes between two releases for the default profile."""
    (profile,) = load_source(ConfigSource(emulate=one)).profiles
    older, newer = RELEASES[one], RELEASES[other]
    return [*sorted(rules_between(profile, older, newer)), *sorted(change_texts(profile, older, newer).values())]


@pytest.mark.slow
def test_another_release_as_the_default_reads_and_compares_as_before():
    name = EARLIER[0].name
    command = [sys.executable, "-c", SCRIPT, name, TODAY]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr
    plugins, changed = json.loads(run.stdout)
    assert plugins == plugins_of_earlier_documents()
    assert changed == changes(TODAY, name)
