"""Causes other than the pod and the sizes of nodes: faults of the pod's claims, and conditions of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moorage.api.core import Node, Taint
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.laboratory.verdicts import Constraint, EveryVerdict, Judgement
from moorage.plugins.node_unschedulable import CORDON
from moorage.plugins.taint_toleration import CONDITIONS
from moorage.plugins.term_names import taint_name
from moorage.plugins.volume_reasons import required_of
from moorage.plugins.volumes.claim_lookup import class_of_claim
from moorage.plugins.volumes.volume_reach import rows_reaching
from moorage.state.pod_info import PodInfo
from moorage.wording import some

__all__ = ["causes_of"]

_DELAYED = "WaitForFirstConsumer"
#: Plugins that judge claims.
_VOLUMES = frozenset({"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits", "DynamicResources"})


def causes_of(pod: PodInfo, judged: EveryVerdict) -> tuple[str, ...]:
    """Return a sentence for each cause: first those of claims, then those of nodes."""
    return (*_claims(pod, judged), *_everywhere(judged), *_conditions(judged))


# -- claims -----------------------------------------------------------------------------------------------------------


def _claims(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield faults of the pod's claims that hold on any node, and which nodes can reach their volumes."""
    claims = judged.snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim = claims.get(use.key)
        if claim is None:
            yield f"claim {use.name}: not found"
        elif claim.metadata.deletion_timestamp is not None:
            yield f"claim {use.name}: being deleted since {claim.metadata.deletion_timestamp}"
        elif claim.status.phase == "Lost":
            yield f"claim {use.name}: lost its volume {claim.spec.volume_name}"
        else:
            said = _bound(claim, judged) if claim.spec.volume_name else _unbound(claim, judged)
            yield from (f"claim {use.name}: {text}" for text in said)


def _unbound(claim: PersistentVolumeClaim, judged: EveryVerdict) -> Iterator[str]:
    name = class_of_claim(claim)
    kind = judged.snapshot.objects(StorageClass).get(name)
    if name and kind is None:
        yield f"unbound; its class {name} does not exist"
    elif kind is None or kind.volume_binding_mode != _DELAYED:
        of = f"class {name} binds at once (Immediate)" if name else "it has no class"
        yield f"unbound; {of}, so the pod waits until a volume is bound to it"


def _bound(claim: PersistentVolumeClaim, judged: EveryVerdict) -> Iterator[str]:
    volume = judged.snapshot.objects(PersistentVolume).get(claim.spec.volume_name)
    if volume is None:
        yield f"bound to volume {claim.spec.volume_name}, which does not exist"
        return
    required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
    if required is None:
        return
    rows = np.flatnonzero(rows_reaching(required, judged.snapshot.nodes))
    if len(rows) == len(judged.names):
        return
    where = some([judged.names[row] for row in rows.tolist()]) or "no node"
    yield f"volume {volume.metadata.name} (class {class_of_claim(claim) or 'none'}) requires {required_of(volume)}: {where}"


def _everywhere(judged: EveryVerdict) -> Iterator[str]:
    """Yield reasons of volume and device plugins that are equal on all nodes: a claim is in use, or no volume fits."""
    for one in judged.refusing:
        if one.name in _VOLUMES and one.plugin is not None and one.refused.all():
            yield from dict.fromkeys(_same(judged, one))


def _same(judged: EveryVerdict, one: Judgement) -> Iterator[str]:
    """Yield what a plugin says of the first node, if it says the same of the last one."""
    first, last = (judged.why(one, row) for row in (0, len(judged.names) - 1))
    if first is None or last is None or first.text != last.text:
        return
    if first.text.startswith("claim") and "=" not in first.text and " label" not in first.text:
        yield first.text.replace(" here", " on any node")


# -- nodes ------------------------------------------------------------------------------------------------------------


def _conditions(judged: EveryVerdict) -> Iterator[str]:
    """Yield the conditions of nodes whose taints keep the pod off, as repairing the nodes is the first remedy."""
    table = judged.snapshot.table
    nodes = table.nodes
    held, first = np.unique(table.taints.ids, return_index=True)
    in_turn = held[np.argsort(first)].tolist()
    for taint in dict.fromkeys(taint for at in in_turn for taint in table.taints.values[at]):
        rows = judged.constraints.get(Constraint("TaintToleration", taint_name(taint)))
        if rows is None or taint.key not in CONDITIONS or taint.key == CORDON.key:
            continue
        refused = np.flatnonzero(rows).tolist()
        since = _since(taint, nodes[refused[0]])
        yield (
            f"{CONDITIONS[taint.key]}{since}: {some([judged.names[row] for row in refused])};"
            " repair the node: the taint goes when it recovers"
        )


def _since(taint: Taint, node: Node) -> str:
    """Return since when a node has a condition, by the taint with this key, and the message in the node's status."""
    added = taint.time_added or next(
        (one.time_added for one in node.spec.taints if one.key == taint.key and one.time_added), ""
    )
    name = "Ready" if taint.key.endswith(("/not-ready", "/unreachable")) else _camel(taint.key.rpartition("/")[2])
    found = next((one for one in node.status.conditions if one.type == name), None)
    reason = f" ({found.type}={found.status}{f', {found.reason}' if found.reason else ''})" if found is not None else ""
    return (f" since {added}" if added else "") + reason


def _camel(text: str) -> str:
    return "".join("PID" if word == "pid" else word.capitalize() for word in text.split("-"))
