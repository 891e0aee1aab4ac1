"""DefaultBinder: bind the pod to the chosen node through the API server.

Source    kube-scheduler 1.36, plugins/defaultbinder/default_binder.go
"""

from __future__ import annotations

from moorage.framework.effects import BindPod
from moorage.framework.points import BindPlugin
from moorage.state.pod_info import PodInfo


class DefaultBinder(BindPlugin[None]):
    """The plugin. It returns the effect; the driver of the engine writes the Binding."""

    name = "DefaultBinder"
    #: ``bind`` is this one effect and reads nothing, so that the engine may write the Binding without asking.
    binds_alone = True

    def bind(self, state: None, pod: PodInfo, node: str) -> tuple[BindPod]:
        return (BindPod(pod, node),)
