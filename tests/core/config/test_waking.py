"""The events that plugins name while hints are off, by release."""

from __future__ import annotations

import pytest

from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.waking import event_kinds
from moorage.framework.events import Action, Resource


def kinds_of(version, plugin):
    events = event_kinds()[load_source(ConfigSource(emulate=version)).gates.emulated.event_kinds][plugin]
    return {event.resource: event.action for event in events}


@pytest.mark.parametrize("version", ["1.22", "1.23", "1.24", "1.25", "1.26", "1.27", "1.28", "1.29"])
def test_fewer_events_wake_pods_up_to_1_29(version):
    added = Action.ADD
    assert kinds_of(version, "NodeUnschedulable") == {Resource.NODE: added | Action.UPDATE_NODE_TAINT}
    assert kinds_of(version, "NodeVolumeLimits") == {Resource.CSI_NODE: added, Resource.POD: Action.DELETE}
    assert kinds_of(version, "EBSLimits") == {Resource.NODE: added, Resource.POD: Action.DELETE}
    assert kinds_of(version, "PodTopologySpread")[Resource.NODE] == added | Action.DELETE | Action.UPDATE_NODE_LABEL


def test_more_events_do_in_1_30():
    assert kinds_of("1.30", "NodeUnschedulable")[Resource.NODE] == Action.ADD | Action.UPDATE
    assert Resource.PERSISTENT_VOLUME_CLAIM in kinds_of("1.30", "NodeVolumeLimits")
    assert kinds_of("1.30", "PodTopologySpread")[Resource.NODE] & Action.UPDATE_NODE_TAINT


def test_fewer_node_updates_wake_pods_in_1_23():
    label, allocatable, taint = Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_ALLOCATABLE, Action.UPDATE_NODE_TAINT
    updates = {"NodeAffinity": label, "NodeName": Action(0), "NodePorts": Action(0), "NodeResourcesFit": allocatable}
    for plugin, update in {**updates, "TaintToleration": taint}.items():
        assert kinds_of("1.23", plugin)[Resource.NODE] == Action.ADD | update
        assert kinds_of("1.24", plugin)[Resource.NODE] == Action.ADD | Action.UPDATE


def test_any_node_update_wakes_pods_that_wait_for_volumes_in_1_22():
    assert kinds_of("1.22", "VolumeBinding")[Resource.NODE] == Action.ADD | Action.UPDATE
    assert kinds_of("1.23", "VolumeBinding")[Resource.NODE] == Action.ADD | Action.UPDATE_NODE_LABEL
