"""Refusals that repeat: a workload that found no quota is tried again after each change in its tree, mostly without success.

What a full search compares is kept: the amounts in each flavor that could take the workload. As long as each such flavor lacks
something, and nothing could be preempted for it, a full search would end as it did before, but for the numbers in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from moorage.simulator.kueue.flavors import Reason, lacking_text, refusal_of, requested, too_large_text
from moorage.simulator.kueue.objects import ClusterQueue, Flavor
from moorage.simulator.kueue.quota import lowest_subtree
from moorage.simulator.kueue.workloads import Amounts, Key, Workload, rank_of

#: Whether there are victims for certain flavors and resources, so that all requests fit.
Finds = Callable[[frozenset[Key], Amounts], bool]


@dataclass(frozen=True, slots=True)
class LastingRefusal:
    """Why a workload of one pod set has no quota.

    ``texts``    reasons that stay
    ``flavors``  for each flavor the amounts asked for, and whether they could ever fit
    ``reason``   that of the condition, if no flavor could ever take it
    ``usage``    what it would have held, by which fair sharing orders it among others
    """

    name: str
    texts: tuple[str, ...]
    flavors: tuple[tuple[bool, tuple[tuple[Key, int], ...]], ...]
    reason: str
    usage: Amounts

    def repeats(self, workload: Workload, queue: ClusterQueue, finds: Finds, *, fair: bool) -> bool:
        """Return whether a search would end as before, without victims and with nothing kept free; note the new numbers.

        ``finds``: whether there are victims for what lacks quota, so that all requests fit. If there are several flavors, the
        search asks that for each resource, and goes on where it has stopped; so one answer is not enough.
        """
        free: dict[Key, int] = {}
        rules = queue.preemption
        preempts = rules.within_queue != "Never" or (queue.parent is not None and rules.reclaim != "Never")
        for usable, asked in self.flavors:
            free |= {key: queue.free(key) for key, _ in asked}
            if not usable:
                continue
            lacking = frozenset(key for key, amount in asked if amount > free[key])
            hopeless = rules.reclaim == "Any" or any(
                _is_refused(queue, key, amount, fair=fair) for key, amount in asked if key in lacking
            )
            if not (lacking and hopeless) or (preempts and len(self.flavors) > 1):
                return False
            if preempts and finds(lacking, {key: amount for key, amount in asked if amount and key[1] != "pods"}):
                return False
        workload.lacks = partial(self.text, free)
        return True

    def text(self, free: Mapping[Key, int]) -> tuple[str, str]:
        """Return the reason and the message of the condition."""
        lacking = [
            lacking_text(key, amount - free[key]) for _, asked in self.flavors for key, amount in asked if amount > free[key]
        ]
        reason = Reason.WAITING if any(usable for usable, _ in self.flavors) else self.reason
        return reason, f"couldn't assign flavors to pod set {self.name}: {', '.join(sorted((*self.texts, *lacking)))}"


def refusal_for(
    workload: Workload, queue: ClusterQueue, flavors: Mapping[str, Flavor], reason: str, usage: Amounts
) -> LastingRefusal | None:  # fmt: skip
    """Return the refusal of a workload that was refused for ``reason``; None if more than amounts decides about it."""
    if len(workload.pod_sets) != 1 or workload.can_be_reduced or len(queue.groups) != 1 or workload.pod_sets[0].topology:
        return None
    [group], [pod_set], [(count, asked)] = queue.groups, workload.pod_sets, requested(workload)
    if any(flavor in flavors and flavors[flavor].topology for flavor in group.flavors):
        return None
    if "pods" in group.resources:
        asked["pods"] = count
    if any(amount and resource not in group.resources for resource, amount in asked.items()):
        return None
    texts: list[str] = []
    tried = []
    for flavor in group.flavors:
        if (text := refusal_of(flavors.get(flavor), flavor, pod_set.spec)) is not None:
            texts.append(text)
            continue
        wanted = [((flavor, name), asked[name]) for name in sorted(asked, key=rank_of) if name in group.resources]
        large = [too_large_text(key, amount, queue.potential(key)) for key, amount in wanted if amount > queue.potential(key)]
        texts += large
        tried.append((not large, tuple((key, amount) for key, amount in wanted if amount <= queue.potential(key))))
    return LastingRefusal(pod_set.name, tuple(texts), tuple(tried), reason, usage)


def _is_refused(queue: ClusterQueue, key: Key, amount: int, *, fair: bool) -> bool:
    """Return whether a search for flavors would not even ask for victims."""
    rules = queue.preemption
    if rules.borrow != "Never" or (fair and rules.reclaim != "Never") or queue.quota(key).nominal >= amount:
        return False
    return not lowest_subtree(queue, key, amount)[1]
