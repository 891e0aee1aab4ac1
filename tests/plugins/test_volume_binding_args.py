"""Test the arguments of VolumeBinding: defaults and validation by feature gate."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.volume_binding import VolumeBindingArgs

CLOSED = FeatureGates({"StorageCapacityScoring": False})
SCORING = FeatureGates()
RISING = (UtilizationPoint(utilization=0, score=0), UtilizationPoint(utilization=100, score=10))


def test_a_shape_is_a_default_only_when_the_plugin_scores():
    assert VolumeBindingArgs().completed(CLOSED) == VolumeBindingArgs(bind_timeout_seconds=600, shape=None)
    for absent in (VolumeBindingArgs(), VolumeBindingArgs(shape=())):
        shape = absent.completed(SCORING).shape
        assert [(point.utilization, point.score) for point in shape] == [(0, 10), (100, 0)]
    assert VolumeBindingArgs(shape=RISING).completed(SCORING).shape == RISING


# arguments, gates, invalid fields
CASES = {
    "defaults": (VolumeBindingArgs(), CLOSED, []),
    "a timeout of zero": (VolumeBindingArgs(bind_timeout_seconds=0), CLOSED, []),
    "a negative timeout": (VolumeBindingArgs(bind_timeout_seconds=-1), CLOSED, ["a.bindTimeoutSeconds"]),
    "a shape without its gate": (VolumeBindingArgs(shape=RISING), CLOSED, ["a.shape"]),
    "an empty shape without its gate": (VolumeBindingArgs(shape=()), CLOSED, ["a.shape"]),
    "a shape": (VolumeBindingArgs(shape=RISING), SCORING, []),
    "no shape although the plugin scores": (VolumeBindingArgs(), SCORING, ["a.shape"]),
    "a falling shape": (VolumeBindingArgs(shape=RISING[::-1]), SCORING, ["a.shape[1].utilization"]),
    "every field invalid": (VolumeBindingArgs(bind_timeout_seconds=-1, shape=()), CLOSED, ["a.bindTimeoutSeconds", "a.shape"]),
}


@pytest.mark.parametrize(("args", "gates", "fields"), CASES.values(), ids=CASES)
def test_faults(args, gates, fields):
    assert [fault.field for fault in args.faults("a", gates)] == fields
