"""Test that DefaultBinder returns the binding as an effect."""

from __future__ import annotations

from moorage.framework.effects import BindPod
from moorage.plugins.default_binder import DefaultBinder
from moorage.testing.builders import a_pod


def test_returns_a_binding():
    pod = a_pod()
    assert list(DefaultBinder().bind(None, pod, "n1")) == [BindPod(pod, "n1")]
