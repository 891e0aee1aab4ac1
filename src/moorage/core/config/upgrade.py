"""The changes for a profile when a later release reads it: rules of its plugins, and new default plugins.

The texts are those of ``docs/reference/releases.md``, by the release in which each rule ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.releases import CURRENT, Release
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.release_1_36 import default_plugins
from moorage.framework.feature_gates import FeatureGates

_FIT: Final = "NodeResourcesFit"
_STRATEGY: Final = "scoringStrategy"
_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_RATIO: Final = "RequestedToCapacityRatio"

#: Plugin → the last release with a rule → what the plugin does in later releases.
_CHANGES: Final[Mapping[str, Mapping[str, str]]] = {
    "InterPodAffinity": {
        "1.26": "counts the anti-affinity of a nominated pod only if a term concerns the pod",
        "1.27": "does not score pods that no term concerns",
        "1.33": "selects every namespace with a namespaceSelector that matches no labels",
    },
    "PodTopologySpread": {
        "1.23": "counts pods on the nodes that the pod matches alone, and rounds scores",
        "1.26": "counts no pods for a constraint with an empty selector",
        "1.27": "does not score pods without constraints",
    },
    **{name: {"1.22": "counts claims of ephemeral volumes"} for name in _DISK_LIMITS},
    "DefaultPreemption": {
        "1.22": "ends with an error where a plugin does, and clears an earlier nomination",
        "1.23": "gives reasons, and counts nodes without victims together",
        "1.26": "waits only for victims of preemption that are terminating on the nominated node",
        "1.28": "compares victims by importance",
        "1.34.7": "does not delete victims again that are being deleted",
    },
    "ImageLocality": {
        "1.28": "counts all nodes that have an image",
        "1.29": "counts images of init containers",
        "1.35": "counts image volumes",
        "1.36": "divides by the number of image volumes too",
    },
    "NodeAffinity": {
        "1.23": "leaves only the named nodes in PreFilter",
        "1.26": "accepts a term that contradicts itself beside others",
        "1.29": "does not score pods without preferred terms",
    },
    "NodePorts": {"1.33": "counts host ports of sidecars"},
    "NodeResourcesBalancedAllocation": {
        "1.26": "counts CPU overhead in millicores",
        "1.32": "skips pods without requests",
        "1.35": "scores by how much the pod changes the balance, so 75 where it changes nothing",
    },
    _FIT: {
        "1.23": "scores the overhead of the pod",
        "1.25": "lets requests of zero pass where an extended resource is overcommitted",
        "1.26": "scores CPU overhead in millicores",
        "1.27": "ignores resources that the pod does not request",
        "1.31": "counts sidecars of placed pods in scores",
        "1.33": "tries no preemption on nodes that are too small, and counts requests of the pod as a whole",
    },
    "NodeVolumeLimits": {
        "1.22": "counts claims of ephemeral volumes",
        "1.24": "counts in-tree volumes without a claim for their CSI driver",
        "1.26": "counts disks of AWS and Azure for their CSI drivers on every node with a CSINode",
        "1.27": "counts disks of Google Compute Engine for their CSI driver on every node with a CSINode",
        "1.31": "reads limits from CSINodes alone, and counts VolumeAttachments",
        "1.35": "counts Portworx volumes for their CSI driver on every node with a CSINode",
    },
    "TaintToleration": {"1.23": "has another reason for taints", "1.34.1": "does not name the taint in its reason"},
    "VolumeZone": {
        "1.26": "looks up claims in PreFilter",
        "1.28": "matches beta labels of volumes with stable labels of nodes",
    },
    "VolumeBinding": {
        "1.22": "rejects pods with lost claims, and has other reasons",
        "1.26": "narrows the nodes to those of bound local volumes, up to 1.28",
        "1.32": "has another reason for volumes out of reach",
        "1.33": "matches VolumeAttributesClasses",
    },
    "VolumeRestrictions": {
        "1.26": "tries preemption for a ReadWriteOncePod claim in use",
        "1.33": "has another reason for ReadWriteOncePod claims in use",
    },
    "DynamicResources": {
        "1.35": "takes different devices for one request",
        "1.36.2": "releases the counters of devices that it refuses",
    },
}


#: A trait of ``Release``, the last release that has it, and what later releases do.
_TRAITS: Final = (
    ("evicts_on_nodes_left_out", "1.28", "preemption does not try nodes that a plugin's PreFilter left out"),
    ("named_nodes_must_exist", "1.28", "a node that a plugin's PreFilter names need not exist"),
    ("ends_with_two_periods", "1.28", "a message with the text of preemption ends with one period"),
    ("tells_of_post_filter", "1.23", "a message ends with the text of preemption"),
    ("runs_own_plugins_first", "1.23", "plugins of an extension point run after those of multiPoint"),
    ("keeps_nominations", "1.22", "an attempt that ends in an error clears the nomination of its pod"),
    ("wakes_after_failed_binding", "1.22", "a failed binding wakes pods that may use the room"),
    ("parks_errors", "1.28", "a pod is retried after its backoff, not after an event, if its attempt ends in an error"),
    ("rejection_ends_pre_filter", "1.29", "the other PreFilter plugins run after one that answers Unschedulable"),
    ("any_own_update_wakes", "1.30", "only updates of a pod that its plugins look at retry it, with queueing hints on"),
    ("quotes_pre_filter", "1.25", "a message quotes the reason of a PreFilter plugin without counting nodes"),
    ("narrowing_rejects", "1.30", "events that a plugin names wake pods whose nodes it narrowed"),
    ("names_nodes_left_out", "1.31", "messages count the nodes that a plugin's PreFilter left out"),
)


def changed_rules(profile: ResolvedProfile, release: Release) -> Iterator[str]:
    """Yield what the plugins of a profile do differently in 1.36 than in ``release``."""
    devices = "DynamicResources"
    if devices in profile.points.get("filter", ()) and devices not in profile.points.get("score", ()):
        yield f"{devices} scores in the default profile of 1.36, with weight 2, and not in this profile"
    yield from (f"{name} {text}" for name, _, text in _changed(profile, release, CURRENT))


def rules_between(profile: ResolvedProfile, one: Release, other: Release) -> Iterator[str]:
    """Yield the differences between two releases for the plugins of a profile, each with the last release of the old rule."""
    older, newer = sorted((one, other), key=lambda release: _number(release.name))
    for name, ended, text in _changed(profile, older, newer):
        since = f"after {ended}" if _number(ended) < _number(newer.name) else f"from {newer.name}"
        yield f"{since}, {name} {text}"
    yield from _changed_traits(older, newer)
    if older.preempted_text != newer.preempted_text:
        text = newer.preempted_text.format(uid="UID", key="NAMESPACE/POD", node="NODE")
        yield f"after {'1.23' if '{key}' in older.preempted_text else '1.28'}, the event of an evicted pod is {text!r}"


def change_texts(profile: ResolvedProfile, one: Release, other: Release) -> dict[str, str]:
    """Return what differs between two releases for a profile, in words, by the plugin or the trait of ``Release``."""
    older, newer = sorted((one, other), key=lambda release: _number(release.name))
    found = {trait: text for trait, _, text in _TRAITS if getattr(older, trait) != getattr(newer, trait)}
    for name, _, text in _changed(profile, older, newer):
        found[name] = f"{found[name]}, and {text}" if name in found else f"{name} {text}"
    return found


def _changed_traits(older: Release, newer: Release) -> Iterator[str]:
    for trait, ended, text in _TRAITS:
        if getattr(older, trait) == getattr(newer, trait):
            continue
        if getattr(newer, trait) != getattr(CURRENT, trait):  # a patch release of an earlier minor release has the rule already
            yield f"in {older.name} and not in {newer.name}, {text}"
        elif _number(newer.name) <= _number(ended):
            yield f"from {newer.name}, {text}"
        else:
            yield f"after {ended}, {text}"


def _changed(profile: ResolvedProfile, older: Release, newer: Release) -> Iterator[tuple[str, str, str]]:
    """Yield a plugin, the last release with an old rule, and what the plugin does in later releases."""
    running = {name for names in profile.points.values() for name in names}
    is_later = _number(newer.name) > _number(CURRENT.name)
    varying = {*older.variants, *(newer.variants if is_later else ()), *(() if older.counts_sidecar_ports else ("NodePorts",))}
    for name, changes in _CHANGES.items():
        for ended, text in changes.items():
            is_taken_back = ended.count(".") == 2 and not is_later and name not in newer.variants
            is_over = _number(ended) < _number(newer.name) or is_taken_back
            if name in running & varying and _number(older.name) <= _number(ended) and is_over:
                yield name, ended, text


def _number(version: str) -> tuple[int, ...]:
    """Return the version's numbers, to compare versions; a minor release ranks after all its patch releases."""
    major, minor, *patch = map(int, version.partition("-")[0].split("."))
    return (major, minor, *(patch or [99]))


def gained_plugins(profile: ResolvedProfile, gates: FeatureGates) -> Iterator[str]:
    """Yield a line for each default plugin of 1.36 that neither the profile nor the release's default profile runs."""
    running = {name for names in profile.points.values() for name in names}
    before = {plugin.name for plugin in default_plugins(gates)}
    for plugin in default_plugins(FeatureGates()):
        if plugin.name not in before and plugin.name not in running:
            yield f"{plugin.name} is a default plugin of 1.36 and does not run in this profile"


def without_refused(args: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of a profile's plugins without those that 1.36 refuses, and a note for each one removed."""
    strategy = args.get(_FIT, {}).get(_STRATEGY, {})
    if strategy.get("type") == _RATIO or strategy.get("requestedToCapacityRatio") is None:
        return args, []
    plain = {name: value for name, value in strategy.items() if name != "requestedToCapacityRatio"}
    note = f"{_FIT}: requestedToCapacityRatio has no effect with type {strategy.get('type')}, and 1.36 refuses it"
    return {**args, _FIT: {**args[_FIT], _STRATEGY: plain}}, [note]
