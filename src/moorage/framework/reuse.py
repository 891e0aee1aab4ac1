"""``Reuse``: what a plugin promises about its answers, so that the scheduler may reuse them for other pods and nodes.

Two promises carry all others: what the plugin reads of a pod (``signature``), and what its answer for a node depends on
(``scope``). A promise changes no decision; it saves calls. A plugin without one runs for every pod.
``moorage.testing.plugin_checks`` checks promises, and ``moorage run --verify`` does in a live cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from moorage.api.meta import Object
from moorage.framework.answer_forms import Domains, Idle, Pins, Share
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, NodeView, PodInfo, Snapshot

__all__ = ["Reuse", "Scope", "Signature"]

#: Name → what a plugin reads of a pod. Plugins that read the same use the same name.
Signature = Mapping[str, Hashable]


class Scope(IntEnum):
    """What the verdict and the raw score of a node depend on, in addition to the pod's signature. Each includes those above.

    Up to NODE_PODS, ``normalize`` of a node depends only on that node's raw score and on the highest raw score.
    """

    NODE = 1
    """The node itself, whatever pods are on it: reused until the node is updated; a plugin that reads other nodes too declares
    ``other_nodes``."""
    USAGE = 2
    """The sums over the node's pods (``pod_count``, ``requested`` …) too, also for pods without a signature: large clusters
    judge nodes with equal sums once, and preemption tries many nodes at once."""
    NODE_PODS = 3
    """The node's pods too: a node is judged again when its pods change."""
    DOMAIN = 4
    """Pods anywhere, but equal for nodes of one topology domain: ``Reuse.domains`` judges domains instead of nodes."""
    CLUSTER = 5
    """Anything in the snapshot: judged again for every pod, unless a pod of its class just failed and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """A plugin's promises. A subclass that overrides one of the plugin's methods declares ``reuse`` again, or has none; only
    variants of built-in plugins keep them, as tests check these.

    ``scope``                what verdicts and scores depend on
    ``signature(pod)``       everything that the plugin reads of a pod; None to judge it by itself; or ``NOTHING_TO_DO``.
                             Pods with equal signatures get equal answers, in PostFilter too where it finds nothing to do
    ``signature_reads``      kinds of objects that the signature depends on, in addition to the pod's shape (its namespace,
                             labels, owners, spec and status). None: it may depend on anything, and every pod is signed
    ``signature_reads_metadata``  for a built-in plugin: whether the signature reads the pod's labels or owners
    ``domains``              the forms for DOMAIN: ``Domains``
    ``idle(pod, snapshot)``  for a plugin that reads other pods but skips most pods: whether it skips all pods of this shape
    ``narrows_to(pod)``      for a PreFilter that may answer ``Narrow``: the node names, without running it, or None
    ``rests_when_skipped``   from Reserve on there is nothing to do for pods that PreFilter skipped
    ``rests(pod, snapshot)``  for such a plugin: whether there is nothing to do for a pod that PreFilter did not skip, either
    ``other_nodes(table)``   for a plugin of scope NODE that reads other nodes too: a value that differs whenever its answer for
                             a node that was not updated may
    ``ignores(state, pod, other)``  for a plugin with ``add_pod`` and ``remove_pod``: True if moving ``other`` changes no
                             verdict on ``pod``, whatever the node. Preemption then tries many nodes at once
    ``ignores_all(state, pod, nodes)``  for a plugin with ``ignores``: a mask of rows where it holds for every pod there. It may
                             leave out rows; their pods are asked about one by one
    ``pins``                 for a PreFilter that may answer ``Narrow``: how to judge pods that name one node each as equal pods
    ``outside()``            for a plugin that reads data from outside the cluster (metrics, files): its version, a value that
                             differs whenever an answer may. Kept answers are forgotten then, and its rejected pods retried
    ``share``                for a built-in plugin of scope USAGE: its share in a rule that judges rows for several plugins
    """

    scope: Scope = Scope.CLUSTER
    signature: Callable[[PodInfo], Signature | None] | None = None
    signature_reads: tuple[type[Object], ...] | None = None
    signature_reads_metadata: bool = False
    domains: Domains[Any, Any] | None = None
    idle: Callable[[PodInfo, Snapshot], Idle] | None = None
    narrows_to: Callable[[PodInfo], frozenset[str] | None] | None = None
    rests_when_skipped: bool = False
    rests: Callable[[PodInfo, Snapshot], bool] | None = None
    other_nodes: Callable[[NodeTable], Hashable] | None = None
    ignores: Callable[[Any, PodInfo, PodInfo], bool] | None = None
    ignores_all: Callable[[Any, PodInfo, NodeView], BoolArray] | None = None
    pins: Pins | None = None
    outside: Callable[[], Hashable] | None = None
    share: Share | None = None
