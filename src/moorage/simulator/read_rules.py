"""How input is read: whether unknown fields are errors, and which unknown kinds are read as workloads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moorage.api.custom_objects import guess_plural
from moorage.api.kinds import Kind
from moorage.errors import InputError
from moorage.inputs.kinds import KINDS
from moorage.inputs.objects import FoundObject, plain_object
from moorage.simulator.unknown_fields import Validation

__all__ = ["USUAL_RULES", "WORKLOAD_SLOTS", "ReadRules", "parse_treat_as", "template_hint"]

_WORKLOAD_NAMES: Final = (
    "CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet",
)  # fmt: skip
_WORKLOADS: Final = {kind.name: kind for kind in KINDS if kind.name in _WORKLOAD_NAMES}
#: The fields of ``ClusterInput`` that hold workloads.
WORKLOAD_SLOTS: Final = tuple(kind.slot for kind in _WORKLOADS.values())
_FORM: Final = re.compile(r"(?P<resource>[a-z0-9-]+(?:\.[a-z0-9-]+)+)=(?P<kind>\w+)")


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How to read unknown fields and kinds.

    ``validation``  how to handle fields that a kind does not have
    ``treat_as``    pairs of ``plural.group`` and the workload kind that its objects are read as
    """

    validation: Validation = Validation.STRICT
    treat_as: tuple[tuple[str, Kind], ...] = ()

    def translated(self, found: FoundObject) -> FoundObject | None:
        """Return an object as the workload that its kind is to be treated as; None if there is no such rule."""
        if not self.treat_as:
            return None
        resource = _resource(found)
        for treated, kind in self.treat_as:
            if treated == resource:
                payload = {**plain_object(found), "apiVersion": kind.api_version, "kind": kind.name}
                return FoundObject(kind.api_version, kind.name, payload, found.where)
        return None


USUAL_RULES: Final = ReadRules()


def parse_treat_as(texts: Iterable[str]) -> tuple[tuple[str, Kind], ...]:
    """Read values of ``--treat-as``, such as ``rollouts.argoproj.io=Deployment``.

    Raises  InputError for another form, and for a kind that is no workload
    """
    return tuple(_parsed(text) for text in texts)


def _parsed(text: str) -> tuple[str, Kind]:
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"--treat-as {text!r}: write PLURAL.GROUP=KIND, such as rollouts.argoproj.io=Deployment")
    kind = _WORKLOADS.get(form["kind"])
    if kind is None:
        raise InputError(f"--treat-as {text!r}: {form['kind']} is not a workload; use one of {', '.join(sorted(_WORKLOADS))}")
    return form["resource"], kind


def template_hint(found: FoundObject) -> str:
    """Return a hint to read an object of an unknown kind with ``--treat-as``; "" if it has no pod template."""
    spec = plain_object(found).get("spec")
    if not isinstance(spec, dict):
        return ""
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(pod, dict) or not isinstance(pod.get("containers"), list):
        return ""
    kind = "Deployment" if "replicas" in spec else "Job"
    return f"it has a pod template: --treat-as {_resource(found)}={kind} places its pods"


def _resource(found: FoundObject) -> str:
    return f"{guess_plural(found.kind)}.{found.api_version.rpartition('/')[0]}"
