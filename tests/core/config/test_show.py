"""A configuration written out: as a document that loads to the same profiles, and as a table."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.configuration_loader import load
from moorage.core.config.profiles import resolve
from moorage.core.config.release_plugins import POINTS_1_36, default_plugins
from moorage.core.config.show import as_document, as_table
from moorage.errors import ConfigError
from moorage.framework.points import POINTS
from moorage.framework.registry import Registry
from moorage.plugins import builtin_registry

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
REGISTRY = builtin_registry()
GATES = FeatureGates()


def read(document, registry=REGISTRY):
    configuration = load(msgspec.json.encode({**HEADER, **document}), "test", registry, GATES)
    return configuration, resolve(configuration, registry, GATES)


def holds_again(document):
    configuration, profiles = read(document)
    written = as_document(configuration, profiles)
    again, same = read(written)
    assert same == profiles
    assert as_document(again, same) == written
    return written


def test_the_defaults_are_written_out():
    written = holds_again({})
    assert list(written)[:3] == ["apiVersion", "kind", "parallelism"]
    assert (written["parallelism"], written["percentageOfNodesToScore"]) == (16, 0)
    assert written["leaderElection"]["leaseDuration"] == "15s"
    assert written["clientConnection"]["qps"] == 50
    (profile,) = written["profiles"]
    assert profile["plugins"]["multiPoint"] == {"disabled": [{"name": "*"}]}
    assert profile["plugins"]["score"]["enabled"][0] == {"name": "TaintToleration", "weight": 3}
    args = {config["name"]: config["args"] for config in profile["pluginConfig"]}
    assert args["DynamicResources"] == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "DynamicResourcesArgs",
        "filterTimeout": "10s",
        "bindingTimeout": "10m0s",
    }


def test_given_values_are_written_out():
    written = holds_again(
        {
            "profiles": [
                {
                    "schedulerName": "a",
                    "plugins": {"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodePorts"}]}},
                    "pluginConfig": [{"name": "NodePorts", "args": {"kept": [1, {"as": "is"}]}}],
                },
                {"schedulerName": "b", "percentageOfNodesToScore": 30},
            ],
            "extenders": [{"urlPrefix": "http://x", "httpTimeout": "1.5s", "tlsConfig": {"caData": "YQ=="}}],
        }
    )
    first, second = written["profiles"]
    assert first["plugins"]["filter"] == {"enabled": [{"name": "NodePorts"}]}
    assert {"name": "NodePorts", "args": {"kept": [1, {"as": "is"}]}} in first["pluginConfig"]
    assert second["percentageOfNodesToScore"] == 30
    assert written["extenders"][0]["httpTimeout"] == "1.5s"
    assert written["extenders"][0]["tlsConfig"]["caData"] == "YQ=="


def test_private_keys_are_not_shown():
    configuration, profiles = read({"extenders": [{"tlsConfig": {"keyData": "c2VjcmV0"}}]})
    shown = str(as_document(configuration, profiles))
    assert "c2VjcmV0" not in shown
    assert "keyData" in shown


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
    holds_again(document)


def test_the_table_lists_plugins_by_extension_point():
    few = Registry(REGISTRY[name] for name in ("PrioritySort", "DefaultBinder", "NodeAffinity"))
    _, profiles = read(
        {
            "profiles": [
                {
                    "schedulerName": "a",
                    "plugins": {
                        "multiPoint": {
                            "disabled": [{"name": "*"}],
                            "enabled": [
                                {"name": "PrioritySort"},
                                {"name": "DefaultBinder"},
                                {"name": "NodeAffinity", "weight": 12},
                                {"name": "GangScheduling"},
                            ],
                        }
                    },
                },
            ]
        },
        few,
    )
    assert as_table(profiles) == (
        "profile a\n"
        "POINT       PLUGIN          WEIGHT\n"
        "preEnqueue  GangScheduling  (not in Moorage)\n"
        "queueSort   PrioritySort\n"
        "preFilter   NodeAffinity\n"
        "filter      NodeAffinity\n"
        "preScore    NodeAffinity\n"
        "score       NodeAffinity    12\n"
        "permit      GangScheduling  (not in Moorage)\n"
        "bind        DefaultBinder\n"
    )


def test_the_page_about_configuration_lists_the_defaults():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    listed = re.search(r"^(\w+(?:, \w+)+)\.$", page.partition("the defaults are:")[2], flags=re.MULTILINE)
    assert listed[1].split(", ") == [plugin.name for plugin in default_plugins(GATES)]
