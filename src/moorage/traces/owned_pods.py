"""The pods that controllers create for a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.core import Pod
from moorage.api.kinds import Kind
from moorage.errors import InputError
from moorage.inputs.files import InputFile
from moorage.inputs.kinds import find_kind
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.pod_creation import create_missing_pods
from moorage.simulator.read_rules import WORKLOAD_SLOTS, ReadRules
from moorage.simulator.unknown_fields import Validation

__all__ = ["pods_of_owner"]

_RULES = ReadRules(Validation("ignore"))


def pods_of_owner(obj: Mapping[str, Any], where: str) -> list[Pod] | None:
    """Return the pods that a controller would create for an object that has none; None for a kind without pods.

    Raises  InputError for an object that cannot be read
    """
    found = find_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    if not isinstance(found, Kind) or found.slot not in WORKLOAD_SLOTS:
        return None
    try:
        data = msgspec.json.encode(obj)
    except (TypeError, msgspec.MsgspecError) as error:
        raise InputError(f"{where}: {error}") from None
    cluster, _ = create_missing_pods(read_sources([InputFile(where, data)], rules=_RULES), quota=False)
    return list(cluster.pods)
