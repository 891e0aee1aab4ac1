"""Pods on which a plugin hung are set aside, so that no scheduler meets them again.

While a plugin does not return, the pod gets a condition that names the plugin and its code. As long as the condition stands and
a profile runs that plugin with that code, PreEnqueue gates the pod, in every replica and after every start. A pod that is
created again, and a plugin that has changed, are tried.
"""

from __future__ import annotations

import inspect
import json
import re
import socket
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from moorage.api.core import Pod
from moorage.basis.client.rest import STRATEGIC_MERGE_PATCH, Rest
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import EnqueueExtensions, Plugin, PreEnqueuePlugin
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Hold
from moorage.live.runtime.hang_watch import Hang
from moorage.state.pod_info import PodInfo

#: The reason of the condition PodScheduled, and the event.
REASON: Final = "PluginHung"
#: The longest ``reportingInstance`` that the API accepts.
_LONGEST_INSTANCE: Final = 128
_NAMED: Final = re.compile(r"plugin (?P<name>\S+) \((?P<code>[0-9a-f]{8})\) did not return from \S+")


class HungPlugin(PreEnqueuePlugin, EnqueueExtensions):
    """Gates the pods on which a plugin of the profile hung. ``codes``: plugin → the checksum of its code."""

    name = "HungPlugin"

    def __init__(self, codes: Mapping[str, str]) -> None:
        self._codes = codes

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        for condition in pod.status.conditions:
            if condition.reason == REASON and condition.type == "PodScheduled":
                named = _NAMED.match(condition.message)
                if named is not None and self._codes.get(named["name"]) == named["code"]:
                    return Hold.because(condition.message, unresolvable=True)
        return None

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL), when=lambda pod, old, new: pod.uid == new.uid)


def setting_aside(profile: Profile) -> Profile:
    """Return a profile that behaves the same, but for pods on which one of its plugins hung."""
    plugin = HungPlugin({name: code_of(one) for name, one in profile.plugins.items()})
    steps = {**profile.steps, "preEnqueue": (Step(plugin.name, plugin, plugin.pre_enqueue), *profile.at("preEnqueue"))}
    return replace(profile, steps=steps, plugins={**profile.plugins, plugin.name: plugin})


def code_of(plugin: Plugin) -> str:
    """Return the checksum of the file of a plugin's class, or of its name where there is no file."""
    kind = type(plugin)
    try:
        code = Path(inspect.getfile(kind)).read_bytes()
    except (OSError, TypeError):
        code = f"{kind.__module__}.{kind.__qualname__}".encode()
    return f"{zlib.crc32(code):08x}"


async def set_aside(rest: Rest, hang: Hang, code: str, seconds: float, now: str, reporter: str) -> None:
    """Write the condition and the event about the pod of a hang.

    Raises  ClusterError
    """
    pod = hang.pod
    if pod is None:
        return
    message = (
        f"plugin {hang.plugin} ({code}) did not return from {hang.point} for {seconds:.0f}s; "
        "the pod is set aside until it is created again or the plugin changes"
    )
    condition = {
        "type": "PodScheduled", "status": "False", "reason": REASON, "message": message, "lastTransitionTime": _second(now),
    }  # fmt: skip
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
    await rest.send("PATCH", path, json.dumps(body).encode(), content_type=STRATEGIC_MERGE_PATCH)
    await rest.send(
        "POST",
        f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events",
        json.dumps(_event(pod, message, now, reporter)).encode(),
    )


def _event(pod: Pod, message: str, now: str, reporter: str) -> Mapping[str, object]:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.metadata.uid}
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": f"{pod.name}.{uuid.uuid4().hex[:16]}", "namespace": pod.namespace},
        "regarding": about, "reason": REASON, "action": "Scheduling", "note": message, "type": "Warning",
        "reportingController": reporter, "reportingInstance": f"{reporter}-{socket.gethostname()}"[:_LONGEST_INSTANCE],
        "eventTime": now,
    }  # fmt: skip


def _second(now: str) -> str:
    """Return a time without its fraction."""
    return now.partition(".")[0].rstrip("Z") + "Z"
