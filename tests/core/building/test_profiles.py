"""Plugins that fail before the first pod are reported by name, in one line."""

from __future__ import annotations

import pytest

import moorage
from moorage.api.feature_gates import FeatureGates
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.errors import InputError
from moorage.simulator.simulate import Options

CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Mine}]}}
"""


def raising(*_):
    raise RuntimeError("no luck")


BROKEN = {  # another method of a plugin with a filter: (name, what it does), the message
    "attach raises": ("attach", raising, "plugin Mine failed in attach: RuntimeError: no luck"),
    "wakes_on raises": ("wakes_on", raising, "plugin Mine failed in wakes_on: RuntimeError: no luck"),
    "wakes_on yields nothing": (
        "wakes_on",
        lambda self: None,
        "plugin Mine failed in wakes_on: TypeError: 'NoneType' object is",
    ),
    "wakes_on yields names": (
        "wakes_on",
        lambda self: ["Node"],
        "plugin Mine: wakes_on yields 'Node'; yield Wake(event, when)",
    ),
}


@pytest.mark.parametrize(("method", "does", "told"), BROKEN.values(), ids=BROKEN)
def test_a_plugin_that_fails_to_start_is_reported(method, does, told):
    mine = type("Mine", (), {"name": "Mine", "filter_node": lambda self, pod, node: None, method: does})
    with pytest.raises(InputError) as caught:
        moorage.simulate([], Options(config=CONFIG, plugins=(mine,)))
    assert str(caught.value).startswith(told)


def test_the_default_configuration_is_resolved_once_for_equal_gates():
    plain, also_plain = load_source(ConfigSource()), load_source(ConfigSource())
    assert plain is also_plain
    gangs = FeatureGates({"GenericWorkload": True, "GangScheduling": True})
    with_gangs = load_source(ConfigSource(open_gates=gangs))
    assert with_gangs.gates["GangScheduling"]
    assert not plain.gates["GangScheduling"]
    assert load_source(ConfigSource(emulate="1.21")).release != plain.release
