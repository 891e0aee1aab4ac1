"""A plugin without ``reuse`` is proven to read only what it reads, or it is not; and what is kept changes no decision."""

import random
import sys
from importlib import import_module, invalidate_caches

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.proven_reuse import proven_reuse
from moorage.framework.reuse import Reuse, Scope
from moorage.framework.verdicts import Hold
from moorage.simulator.simulate import Options, simulate
from moorage.state.view import PodInfo
from moorage.testing.builders import a_node, a_pod

HEAD = """
import random
import time
from moorage.framework.verdicts import Hold

LIMIT = 3
WORDS = ("fast", "slow")
SEEN = []
REFUSED = Hold.because("refused")


def team_of(pod):
    return pod.labels.get("team", "none")


class Rule:
    name = "Rule"
    key = "disk"
    weights = {}

    def __init__(self):
        self.most = 5
        self.calls = 0
        self.held = []

    @property
    def odd(self):
        return time.time()

    def best(self, node):
        return node.labels.get(self.key)

"""

#: The body of ``filter_node(self, pod, node)`` → the parts of pods that it reads.
PROVEN = {
    "a label of the pod": ("return None if pod.labels.get('team') == node.name else REFUSED", {("label", "team")}),
    "a label that it needs": ("return Hold.because('x') if pod.labels['team'] == 'a' else None", {("label", "team")}),
    "whether there is a label": ("return REFUSED if 'team' in pod.labels else None", {("label", "team")}),
    "all labels": ("return REFUSED if set(pod.labels) & set(node.labels) else None", {"labels"}),
    "the namespace": ("return REFUSED if pod.namespace.startswith(node.name) else None", {"namespace"}),
    "the priority": ("return REFUSED if pod.priority > LIMIT else None", {"priority"}),
    "the spec": ("return REFUSED if len(pod.spec.tolerations) > 1 else None", {("spec", "tolerations")}),
    "the node object": ("return REFUSED if any(t.key == 'x' for t in node.node.spec.taints) else None", set()),
    "sums of the node": ("return REFUSED if node.requested('cpu') > node.allocatable('cpu') // 2 else None", set()),
    "an attribute": ("return REFUSED if node.allowed_pods > self.most else None", set()),
    "a helper of the class": ("return REFUSED if self.best(node) in WORDS else None", set()),
    "a function": ("return REFUSED if team_of(pod) != 'a' else None", {("label", "team")}),
    "a loop": ("n = 0\n        for x in node.labels:\n            n += len(x)\n        return REFUSED if n else None", set()),
    "a text": ("return Hold.because(f\"{node.name} is {node.labels.get('team')}\") if pod.labels else None", {"labels"}),
}  # fmt: skip

UNPROVEN = {
    "a clock": "return REFUSED if time.time() > 5 else None",
    "chance": "return REFUSED if random.random() > 0.5 else None",
    "a count": "self.calls += 1\n        return REFUSED if self.calls > 3 else None",
    "a list of the plugin": "return REFUSED if node.name in self.held else None",
    "a mapping of the class": "return REFUSED if self.weights.get(node.name) else None",
    "a list of the module": "return REFUSED if node.name in SEEN else None",
    "a list that is written": "SEEN.append(node.name)\n        return None",
    "a mapping that is changed": "node.labels.pop('team', None)\n        return None",
    "a mapping that is changed in place": "held = node.labels\n        held |= {'team': 'a'}\n        return None",
    "a property": "return REFUSED if self.odd else None",
    "the pod as a whole": "return REFUSED if str(pod) == 'x' else None",
    "the name of the pod": "return REFUSED if pod.name == 'x' else None",
    "the pods of the node": "return REFUSED if node.pods else None",
    "the table": "return REFUSED if node._table.nodes else None",
    "the resource version": "return REFUSED if node.node.metadata.resource_version == '1' else None",
    "the node object as a text": "return REFUSED if 'x' in str(node.node) else None",
    "a class": "return REFUSED if type(pod) is None else None",
    "a code that is made": "return eval('None')",
    "a builtin with effects": "print(node.name)",
    "an attribute that is made": "return getattr(self, node.name)",
    "which object it is": "return REFUSED if node.labels is pod.labels else None",
    "a function in a name": "test = node.labels.get\n        return REFUSED if test('x') else None",
    "a lambda": "return REFUSED if (lambda: SEEN)() else None",
    "an import": "import os\n        return REFUSED if os.environ.get('X') else None",
    "a failure that is caught": "try:\n            return REFUSED\n        except ValueError:\n            return None",
    "a generator": "yield REFUSED",
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Write plugins into a module, and import it."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def make(body, more=""):
        name = f"proven_{len(names)}_{random.randrange(1 << 40)}"
        names.append(name)
        method = f"    def filter_node(self, pod, node):\n        {body}\n"
        (tmp_path / f"{name}.py").write_text(f"{HEAD}{method}{more}")
        invalidate_caches()
        return import_module(name)

    yield make
    for name in names:
        sys.modules.pop(name, None)


def of_pod(plugin):
    """Return the signature of a pod, by the parts that it reads."""
    reuse = proven_reuse(plugin)
    assert reuse is not None
    return next(iter(reuse.signature(PodInfo(a_pod("p", {"team": "a", "app": "b"}).pod)).values()))


@pytest.mark.parametrize("name", PROVEN)
def test_what_only_reads_is_proven(made, name):
    body, parts = PROVEN[name]
    plugin = made(body).Rule()
    assert len(of_pod(plugin)) == len(parts)
    sums = name == "sums of the node"
    assert proven_reuse(plugin).scope is (Scope.NODE_PODS if sums else Scope.NODE)


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_may_do_more_is_not(made, name):
    assert proven_reuse(made(UNPROVEN[name]).Rule()) is None


@pytest.mark.parametrize(
    "more",
    [
        "    def pre_filter(self, pod, snapshot):\n        return pod\n",
        "    def reserve(self, state, pod, node):\n        return None\n",
        "    def normalize(self, state, scores):\n        return scores\n",
        "    def __getattr__(self, name):\n        return 1\n",
        "    def score_node(self, pod, node):\n        return random.randrange(9)\n",
        "\nRule.filter_node = lambda self, pod, node: SEEN and REFUSED or None\n",
        "\nRule.filter_node.__defaults__ = (3,)\n",
    ],
)
def test_a_plugin_with_more_than_these_methods_is_not_proven(made, more):
    assert proven_reuse(made("return None", more).Rule()) is None


def test_code_that_is_not_that_of_the_file_is_not_proven(made, tmp_path):
    module = made("return None if node.name else REFUSED")
    path = tmp_path / f"{module.__name__}.py"
    path.write_text(path.read_text().replace("node.name else", "pod.labels else"))
    assert proven_reuse(module.Rule()) is None


def test_a_spec_with_a_number_beyond_64_bits_has_a_signature(made):
    plugin = made("return REFUSED if len(pod.spec.volumes) > 1 else None").Rule()
    sign = proven_reuse(plugin).signature
    signed = []
    for size in (2**70, 2**70, 2**71, 5):
        template = {"spec": {"limit": size}}
        volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
        signed.append(sign(PodInfo(a_pod("p", volumes=[volume]).pod)))
    assert signed[0] == signed[1]
    assert len({str(one) for one in signed}) == 3


def test_what_is_replaced_has_another_version(made):
    module = made("return REFUSED if team_of(pod) == self.key and LIMIT > self.most else None")
    plugin = module.Rule()
    version = proven_reuse(plugin).outside
    seen = [version()]
    for change in (
        lambda: setattr(plugin, "most", 7), lambda: setattr(plugin, "key", "team"), lambda: setattr(module, "LIMIT", 4),
        lambda: setattr(module, "team_of", len), lambda: setattr(module, "REFUSED", None),
    ):  # fmt: skip
        assert version() == seen[-1]
        change()
        assert version() not in seen
        seen.append(version())


class Teams:
    name = "Rule"

    def filter_node(self, pod, node):
        wanted = pod.labels.get("team")
        if wanted is not None and node.labels.get("team", "a") != wanted:
            return Hold.because(f"team {node.labels.get('team', 'a')}")
        return Hold.because("full") if node.pod_count >= 4 and pod.priority < 1 else None

    def score_node(self, pod, node):
        return (30 if node.labels.get("disk") == pod.labels.get("disk") else 0) + 10 * node.pod_count


class AskedTeams(Teams):
    reuse = Reuse()


CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Rule}]}}}]
"""
words = st.sampled_from(["a", "b", None])
nodes = st.lists(st.tuples(words, words, st.integers(1, 4)), min_size=1, max_size=6)
pods = st.lists(st.tuples(words, words, st.integers(0, 1), st.sampled_from(["500m", "1", "2"])), min_size=1, max_size=14)


def labelled(**labels):
    return {key: value for key, value in labels.items() if value is not None}


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(nodes=nodes, pods=pods, seed=st.integers(0, 3))
def test_kept_answers_decide_as_asking_each_time(nodes, pods, seed):
    world = [
        a_node(f"n{at}", labelled(team=team, disk=disk), allocatable={"cpu": str(cpu), "memory": "8Gi", "pods": 9})
        for at, (team, disk, cpu) in enumerate(nodes)
    ] + [
        a_pod(
            f"p{at}", labelled(team=team, disk=disk), priority=priority,
            containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        ).pod
        for at, (team, disk, priority, cpu) in enumerate(pods)
    ]  # fmt: skip
    kept, asked = (simulate(world, Options(config=CONFIG, plugins=(cls,), seed=seed)) for cls in (Teams, AskedTeams))
    assert proven_reuse(Teams()) is not None
    assert list(map(repr, kept.pods)) == list(map(repr, asked.pods))


def test_a_plugin_that_is_proven_is_asked_once_for_each_class(made):
    """Of 200 nodes and 200 pods of two teams: each node is judged for each team, not for each pod."""
    module = made("return REFUSED if pod.labels.get('team') == node.labels.get('team') else None")
    code, calls = module.Rule.filter_node.__code__, 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call" and frame.f_code is code

    world = [a_node(f"n{at}", {"team": "ab"[at % 2]}) for at in range(200)]
    world += [a_pod(f"p{at}", {"team": "ab"[at % 2]}).pod for at in range(200)]
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run = simulate(world, Options(config=CONFIG, plugins=(module.Rule,)))
    finally:
        sys.setprofile(before)
    assert sum(one.node is not None for one in run.pods) == 200
    assert 400 <= calls <= 1200
