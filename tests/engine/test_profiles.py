"""Plugins that are broken before the first pod comes are told by name, in one line."""

from __future__ import annotations

import pytest

import moorage
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


BROKEN = {  # what the plugin has besides a filter: (method, what it does), what is said
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
def test_a_plugin_that_cannot_begin_is_told_of(method, does, told):
    mine = type("Mine", (), {"name": "Mine", "filter_node": lambda self, pod, node: None, method: does})
    with pytest.raises(InputError) as caught:
        moorage.simulate([], Options(config=CONFIG, plugins=(mine,)))
    assert str(caught.value).startswith(told)
