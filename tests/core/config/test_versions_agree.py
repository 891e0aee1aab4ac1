"""Random profiles, in every version and release that reads it: which plugins run depends on the release, not on the form.

v1beta3 and v1 have the same form, so that a profile runs the same plugins in both; v1beta2 lists each extension point. A
converted document runs the plugins of the one that it was made from, and one that is shown is read back as it was.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.releases import RELEASES, TODAY
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.convert import convert
from moorage.core.config.show import as_document
from moorage.errors import ConfigError
from moorage.plugins import builtin_registry

GROUP = "kubescheduler.config.k8s.io"
#: Plugins of every release that reads a beta, and the points of each in all of them.
POINTS = {
    "NodeAffinity": ("preFilter", "filter", "score"), "TaintToleration": ("filter", "score"), "NodePorts": ("filter",),
    "NodeResourcesFit": ("filter", "score"), "ImageLocality": ("score",), "PodTopologySpread": ("filter", "score"),
    "InterPodAffinity": ("preFilter", "filter", "score"), "DefaultPreemption": ("postFilter",), "VolumeBinding": ("reserve",),
}  # fmt: skip
OWN_POINTS = ("preFilter", "filter", "score", "postFilter", "reserve")


def references(names, *, weighted):
    weights = st.none() | st.integers(0, 100)
    one = st.builds(
        lambda name, weight: {"name": name, **({} if weight is None else {"weight": weight})},
        st.sampled_from(names), weights if weighted else st.none(),
    )  # fmt: skip
    return st.lists(one, max_size=3, unique_by=lambda given: given["name"])


def plugin_sets(point):
    names = [name for name, points in POINTS.items() if point in points]
    disabled = st.lists(st.sampled_from([*names, "*"]), max_size=2, unique=True)
    return st.fixed_dictionaries({
        "enabled": references(names, weighted=point == "score"),
        "disabled": disabled.map(lambda given: [{"name": name} for name in given]),
    })  # fmt: skip


MULTI_POINT = st.fixed_dictionaries({
    "enabled": references([*POINTS], weighted=True),
    "disabled": st.lists(st.sampled_from([*POINTS]), max_size=2, unique=True).map(lambda all_: [{"name": one} for one in all_]),
})  # fmt: skip
BODIES = st.fixed_dictionaries({}, optional={point: plugin_sets(point) for point in OWN_POINTS})
WITH_MULTI_POINT = st.fixed_dictionaries({}, optional={"multiPoint": MULTI_POINT, **{p: plugin_sets(p) for p in OWN_POINTS}})


def loaded(version, plugins, emulate=None):
    document = {"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration", "profiles": [{"plugins": plugins}]}
    return load_source(ConfigSource(json.dumps(document).encode(), "test", emulate=emulate))


def answer(version, plugins, emulate=None):
    """Return the plugins of each point and the weights of scores, or the places of the faults."""
    try:
        (profile,) = loaded(version, plugins, emulate).profiles
    except ConfigError as error:
        return sorted(fault.field for fault in error.faults)
    return profile.points, profile.weights


def readers(version):
    return [name for name, release in RELEASES.items() if version in release.documents and name != TODAY]


@pytest.mark.parametrize("release", [None, *(name for name in readers("v1beta3") if name in readers("v1"))])
@settings(max_examples=6)
@given(plugins=WITH_MULTI_POINT)
def test_v1beta3_runs_what_v1_runs(release, plugins):
    assert answer("v1beta3", plugins, release) == answer("v1", plugins, release)


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
@settings(max_examples=20)
@given(plugins=BODIES)
def test_a_converted_document_decides_as_its_input(version, plugins):
    try:
        given_ = loaded(version, plugins)
    except ConfigError:
        return
    converted = convert(given_, builtin_registry()).document
    again = load_source(ConfigSource(json.dumps(converted).encode(), "converted"))
    assert converted["apiVersion"] == f"{GROUP}/v1"
    assert (again.profiles, again.release) == (given_.profiles, given_.release)


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
@settings(max_examples=12)
@given(plugins=BODIES)
def test_a_shown_document_is_read_back(version, plugins):
    try:
        found = loaded(version, plugins)
    except ConfigError:
        return
    shown = as_document(found.configuration, found.profiles, found.version)
    assert load_source(ConfigSource(json.dumps(shown).encode(), "shown")).profiles == found.profiles


@settings(max_examples=20)
@given(plugins=BODIES)
def test_v1beta2_runs_every_default_plugin_that_it_does_not_disable(plugins):
    found = answer("v1beta2", plugins)
    if isinstance(found, list):
        return
    for point, names in answer("v1", {})[0].items():
        disabled = {one["name"] for one in plugins.get(point, {}).get("disabled", ())}
        if "*" not in disabled:
            assert set(names) - disabled <= set(found[0].get(point, ())), point


@pytest.mark.parametrize("release", readers("v1beta2"))
def test_gates_hold_in_every_release_that_has_them(release):
    emulated = RELEASES[release]
    for version in sorted({"v1beta2", "v1beta3"} & emulated.documents):
        has = "SchedulingGates" in answer(version, {}, release)[0].get("preEnqueue", ())
        assert has is (emulated.has_pre_enqueue and emulated.gates["PodSchedulingReadiness"].default)
