"""A configuration written out as kube-scheduler writes it: its sets as they are, with every default."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.basis.inputs.scheduler_config import ConfigSource
from moorage.core.config.release_plugins import POINTS_1_36, default_plugins
from moorage.core.config.scheduler_document import load_any
from moorage.core.config.written_configuration import as_written
from moorage.errors import ConfigError
from moorage.framework.points import POINTS

V1 = "kubescheduler.config.k8s.io/v1"
RULES = ConfigSource()
#: The points as kube-scheduler v1.36.2 lists them, in its order.
LISTED = [
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind",
    "postBind", "multiPoint", "placementGenerate", "placementScore",
]  # fmt: skip


def read(document, version=V1):
    text = msgspec.json.encode({"apiVersion": version, "kind": "KubeSchedulerConfiguration", **document})
    return load_any(text, "test", RULES)


def written(document):
    """Return what is written, having seen that it loads to the same and is written the same again."""
    loaded = read(document)
    found = as_written(loaded)
    again = read(found)
    assert again.profiles == loaded.profiles
    assert as_written(again) == found
    return found


def test_the_defaults_are_those_that_kube_scheduler_writes():
    found = written({})
    (profile,) = found.pop("profiles")
    assert found == {
        "apiVersion": V1,
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 16,
        "leaderElection": {
            "leaderElect": True, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s",
            "resourceLock": "leases", "resourceName": "kube-scheduler", "resourceNamespace": "kube-system",
        },
        "clientConnection": {
            "kubeconfig": "", "acceptContentTypes": "", "contentType": "application/vnd.kubernetes.protobuf",
            "qps": 50, "burst": 100,
        },
        "enableProfiling": True,
        "enableContentionProfiling": True,
        "percentageOfNodesToScore": 0,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
    }  # fmt: skip
    assert list(profile) == ["schedulerName", "plugins", "pluginConfig"]
    assert list(profile["plugins"]) == LISTED
    enabled = [{"name": one.name, "weight": one.weight or 0} for one in default_plugins(FeatureGates())]
    assert {point: one for point, one in profile["plugins"].items() if one} == {"multiPoint": {"enabled": enabled}}
    assert {one["name"]: one["args"] for one in profile["pluginConfig"]}["InterPodAffinity"] == {
        "apiVersion": V1, "kind": "InterPodAffinityArgs", "hardPodAffinityWeight": 1,
        "ignorePreferredTermsOfExistingPods": False,
    }  # fmt: skip


def test_a_profile_keeps_its_sets_and_has_the_arguments_of_what_it_enables():
    document = {
        "schedulerName": "a",
        "percentageOfNodesToScore": 0,
        "plugins": {
            "multiPoint": {
                "enabled": [{"name": "DefaultBinder"}, {"name": "PrioritySort"}, {"name": "NodeAffinity", "weight": 12}],
                "disabled": [{"name": "*"}],
            },
            "score": {"disabled": [{"name": "NodeAffinity"}], "enabled": [{"name": "ImageLocality"}]},
        },
        "pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 3}}],
    }
    (profile,) = written({"profiles": [document]})["profiles"]
    assert profile["percentageOfNodesToScore"] == 0
    assert {point: one for point, one in profile["plugins"].items() if one} == {
        "multiPoint": {
            "enabled": [
                {"name": "DefaultBinder", "weight": 0}, {"name": "PrioritySort", "weight": 0},
                {"name": "NodeAffinity", "weight": 12},
            ],
            "disabled": [{"name": "*", "weight": 0}],
        },
        "score": {"enabled": [{"name": "ImageLocality", "weight": 0}], "disabled": [{"name": "NodeAffinity", "weight": 0}]},
    }  # fmt: skip
    assert [one["name"] for one in profile["pluginConfig"]] == ["NodeAffinity"]


def test_an_extender_is_written_with_its_settings_and_timeout():
    extenders = [
        {"urlPrefix": "http://a", "filterVerb": "f", "tlsConfig": {"insecure": False}, "managedResources": [{"name": "x.y/z"}]},
        {
            "urlPrefix": "https://b",
            "bindVerb": "b",
            "httpTimeout": "1.5s",
            "ignorable": True,
            "tlsConfig": {"keyData": "c2VjcmV0"},
        },
    ]
    assert written({"extenders": extenders[:1]})["extenders"] == [{**extenders[0], "tlsConfig": {}, "httpTimeout": "5s"}]
    second = as_written(read({"extenders": extenders}))["extenders"][1]
    assert second["tlsConfig"].pop("keyData") != "c2VjcmV0"
    assert second == {**extenders[1], "tlsConfig": {}}


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"delayCacheUntilActive": True}, {"delayCacheUntilActive": True}),
        ({"enableProfiling": False}, {"enableProfiling": False, "enableContentionProfiling": False}),
        ({"percentageOfNodesToScore": 0, "leaderElection": {"leaderElect": False}}, {"percentageOfNodesToScore": 0}),
    ],
)
def test_false_is_written_where_kube_scheduler_writes_it(document, shown):
    found = written(document)
    assert {name: found[name] for name in shown} == shown
    assert ("delayCacheUntilActive" in found) is ("delayCacheUntilActive" in shown)
    assert found["leaderElection"]["leaderElect"] is not ("leaderElection" in document)


def test_an_older_version_is_written_point_by_point():
    found = as_written(read({}, "kubescheduler.config.k8s.io/v1beta2"))
    assert found["apiVersion"] == "kubescheduler.config.k8s.io/v1beta2"
    assert found["profiles"][0]["plugins"]["filter"]["disabled"] == [{"name": "*"}]


points = st.sampled_from([*POINTS, "multiPoint"])
entries = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from([*POINTS_1_36, "*"])}, optional={"weight": st.integers(0, 9)}), max_size=2
)
sets = st.fixed_dictionaries({}, optional={"enabled": entries, "disabled": entries})


@settings(max_examples=40, deadline=None)
@given(plugins=st.dictionaries(points, sets, max_size=3))
def test_every_valid_configuration_round_trips(plugins):
    document = {"profiles": [{"schedulerName": "a", "plugins": plugins}]}
    try:
        read(document)
    except ConfigError:
        return
    written(document)
