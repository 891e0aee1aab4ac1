"""The oracle's own rules for which pod fits on which node, computed from JSON objects.

It covers resources, pods per node, host ports, taints, cordoned nodes, node selectors, and required affinity and spread between
pods. It is slow, and shares no code with the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

__all__ = ["crowds", "fits_alone", "fits_beside", "is_over", "needs_neighbors", "priority_of", "selected"]

Document = dict[str, Any]

_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(1000),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip


def amount(text: Any) -> Fraction:
    """Return a quantity as a number."""
    words = str(text)
    digits = words.rstrip("numkKMGTi")
    return Fraction(digits) * _SUFFIXES[words[len(digits) :]]


def is_over(pod: Document) -> bool:
    """Return True for a pod that has ended."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def group_of(pod: Document) -> str:
    """Return the key of a pod's group; "" for none."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def least_of(group: Document | None) -> int:
    """Return the minimum number of pods of a gang; 0 for other groups."""
    gang = group["spec"]["schedulingPolicy"].get("gang") if group is not None else None
    return int(gang["minCount"]) if gang is not None else 0


def keeps_together(group: Document) -> bool:
    """Return True for a group with a topology constraint."""
    return bool((group["spec"].get("schedulingConstraints") or {}).get("topology"))


def priority_of(pod: Document) -> int:
    """Return the priority of a pod, 0 by default."""
    return int(pod["spec"].get("priority") or 0)


def asks(pod: Document) -> dict[str, Fraction]:
    """Return the resource requests of a pod: the sum of its containers, or the largest init container."""
    total: dict[str, Fraction] = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        for name, value in container.get("resources", {}).get("requests", {}).items():
            total[name] = total.get(name, Fraction(0)) + amount(value)
    for container in pod["spec"].get("initContainers", ()):
        for name, value in container.get("resources", {}).get("requests", {}).items():
            total[name] = max(total.get(name, Fraction(0)), amount(value))
    for name, value in (pod["spec"].get("overhead") or {}).items():
        total[name] = total.get(name, Fraction(0)) + amount(value)
    return total


def _ports(pod: Document) -> list[tuple[str, int, str]]:
    found = []
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if port.get("hostPort"):
                found += [(port.get("protocol", "TCP"), port["hostPort"], port.get("hostIP") or "0.0.0.0")]  # noqa: S104
    return found


def _clash(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    anywhere = "0.0.0.0"  # noqa: S104
    return one[:2] == other[:2] and (one[2] == other[2] or anywhere in (one[2], other[2]))


def crowds(pod: Document, node: Document, others: Iterable[Document]) -> str:
    """Return the resource or port that is overcommitted when a pod joins others on a node; "" if the pod fits.

    Resources that the pod does not request are ignored, as in the scheduler.
    """
    others = list(others)
    has = node["status"].get("allocatable", {})
    for name, wanted in asks(pod).items():
        used = wanted + sum((asks(other).get(name, Fraction(0)) for other in others), Fraction(0))
        if wanted and used > amount(has.get(name, 0)):
            return f"{float(used):g} {name} where there is {has.get(name, 0)}"
    for port in _ports(pod):
        if any(_clash(port, held) for other in others for held in _ports(other)):
            return f"port {port[1]} is used twice"
    return ""


# -- node without other pods --------------------------------------------------------------------------------------------


def _tolerates(pod: Document, taint: Document) -> bool:
    for one in pod["spec"].get("tolerations", ()):
        if one.get("effect") not in {None, "", taint["effect"]}:
            continue
        operator = one.get("operator") or "Equal"
        if operator == "Exists" and one.get("key") in {None, "", taint["key"]}:
            return True
        if operator == "Equal" and one.get("key") == taint["key"] and one.get("value", "") == taint.get("value", ""):
            return True
    return False


def selected(labels: dict[str, str], requirements: Iterable[Document]) -> bool:
    """Return True if labels match every requirement of a selector."""
    for one in requirements:
        held, values = labels.get(one["key"]), one.get("values") or []
        passes = {
            "In": held in values,
            "NotIn": held not in values,
            "Exists": held is not None,
            "DoesNotExist": held is None,
        }[one["operator"]]
        if not passes:
            return False
    return True


def _chooses(pod: Document, node: Document) -> bool:
    """Return True if the pod's node selector and required node affinity match the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(selected(labels, term.get("matchExpressions", ())) for term in required["nodeSelectorTerms"])


def fits_alone(pod: Document, node: Document) -> str:
    """Return why a node does not suit a pod regardless of other pods; "" if it does."""
    spec = node.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if taint["effect"] in {"NoSchedule", "NoExecute"}]
    if spec.get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for taint in taints:
        if not _tolerates(pod, taint):
            return f"taint {taint['key']}"
    return "" if _chooses(pod, node) else "the node is not selected"


# -- with other pods ----------------------------------------------------------------------------------------------------


def fits_beside(pod: Document, node: Document, nodes: dict[str, Document], placed: Iterable[tuple[Document, str]]) -> str:
    """Return why a pod does not fit on a node with these placed pods; "" if it fits."""
    placed = [(other, on) for other, on in placed if on in nodes and other["metadata"]["uid"] != pod["metadata"]["uid"]]
    name = node["metadata"]["name"]
    reason = fits_alone(pod, node)
    if not reason:
        reason = crowds(pod, node, [other for other, on in placed if on == name])
    checks = (_anti_affinity, _affinity, _spread)
    return reason or next((found for check in checks if (found := check(pod, node, nodes, placed))), "")


def needs_neighbors(pod: Document) -> bool:
    """Return True if pods placed elsewhere can make a node suit the pod: required affinity or spread constraints."""
    hard = (one.get("whenUnsatisfiable") == "DoNotSchedule" for one in pod["spec"].get("topologySpreadConstraints") or ())
    return bool(_terms(pod, "podAffinity")) or any(hard)


def _terms(pod: Document, kind: str) -> list[Document]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _matches(term: Document, owner: Document, pod: Document) -> bool:
    """Return True if an affinity term of one pod matches another."""
    if pod["metadata"]["namespace"] not in (term.get("namespaces") or [owner["metadata"]["namespace"]]):
        return False
    return _by_selector(term.get("labelSelector"), pod)


def _by_selector(selector: Document | None, pod: Document) -> bool:
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return selected(labels, selector.get("matchExpressions") or ())


def _domain(node: Document, key: str) -> str | None:
    found: str | None = (node["metadata"].get("labels") or {}).get(key)
    return found


def _anti_affinity(pod: Document, node: Document, nodes: dict[str, Document], placed: list[tuple[Document, str]]) -> str:
    for other, on in placed:
        for owner, subject in ((pod, other), (other, pod)):
            for term in _terms(owner, "podAntiAffinity"):
                key = term["topologyKey"]
                here, there = _domain(node, key), _domain(nodes[on], key)
                if here is not None and here == there and _matches(term, owner, subject):
                    return f"anti-affinity of {owner['metadata']['name']} to {subject['metadata']['name']}"
    return ""


def _affinity(pod: Document, node: Document, nodes: dict[str, Document], placed: list[tuple[Document, str]]) -> str:
    terms = _terms(pod, "podAffinity")
    if not terms:
        return ""
    if any(_domain(node, term["topologyKey"]) is None for term in terms):
        return "no such domain"
    wanted = [(other, on) for other, on in placed if all(_matches(term, pod, other) for term in terms)]
    for term in terms:
        key = term["topologyKey"]
        if not any(_domain(nodes[on], key) == _domain(node, key) for _, on in wanted):
            break
    else:
        return ""
    # The first pod of a self-matching term may be placed anywhere.
    anywhere = any(_domain(nodes[on], term["topologyKey"]) is not None for _, on in wanted for term in terms)
    first = not anywhere and all(_matches(term, pod, pod) for term in terms)
    return "" if first else "no pod that its affinity requires"


def _spread(pod: Document, node: Document, nodes: dict[str, Document], placed: list[tuple[Document, str]]) -> str:
    for one in pod["spec"].get("topologySpreadConstraints") or ():
        if one["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        key = one["topologyKey"]
        counts: dict[str, int] = {}
        for candidate in nodes.values():
            domain = _domain(candidate, key)
            if domain is not None and _chooses(pod, candidate):
                counts.setdefault(domain, 0)
        for other, on in placed:
            domain = _domain(nodes[on], key)
            counted = domain in counts and not other["metadata"].get("deletionTimestamp") and _chooses(pod, nodes[on])
            same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            if counted and same and domain is not None and _by_selector(one.get("labelSelector"), other):
                counts[domain] += 1
        here = _domain(node, key)
        if here is None:
            return "no such domain"
        mine = 1 if _by_selector(one.get("labelSelector"), pod) else 0
        if counts.get(here, 0) + mine - min(counts.values(), default=0) > one["maxSkew"]:
            return f"{here} would exceed maxSkew"
    return ""
