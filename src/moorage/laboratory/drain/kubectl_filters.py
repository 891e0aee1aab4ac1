"""The rules of ``kubectl drain``: which pods of a node it evicts, which it leaves there, and which it refuses to touch.

kubectl applies its filters to each pod in this order. The first filter that does not let a pod be evicted decides, and later
ones are skipped:

1. A pod that terminates for longer than ``--skip-wait-for-delete-timeout`` is passed over.
2. A pod of a DaemonSet is refused without ``--ignore-daemonsets``, and left there with it. If that DaemonSet does not exist,
   the pod is refused without ``--force``, and evicted with it.
3. A mirror pod is passed over.
4. A pod with an emptyDir volume is refused without ``--delete-emptydir-data``.
5. A pod without a controller is refused without ``--force``.

Rules 2, 4 and 5 do not apply to finished pods. If one pod of a node is refused, kubectl evicts none. Texts are kubectl's own.

Source  kubectl 1.36, pkg/drain/filters.go
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from moorage.api.core import ENDED_PHASES, OwnerReference, Pod
from moorage.simulator.owners import controller_of, is_mirror

#: The rule that decided about a pod; empty: no rule objects.
DrainRule = Literal["", "terminating", "DaemonSet", "orphan", "mirror", "emptyDir", "noController"]
#: What happens to a pod: kubectl evicts it, leaves it on its node, or refuses to drain the node.
DrainAction = Literal["evict", "stay", "refuse"]

_DAEMON_FATAL: Final = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
_DAEMON_WARNING: Final = "ignoring DaemonSet-managed Pods"
_STORAGE_FATAL: Final = "Pods with local storage (use --delete-emptydir-data to override)"
_STORAGE_WARNING: Final = "deleting Pods with local storage"
_ALONE_FATAL: Final = "cannot delete Pods that declare no controller (use --force to override)"
_ALONE_WARNING: Final = "deleting Pods that declare no controller"


class DrainFlags(Struct, frozen=True):
    """The flags of ``kubectl drain`` that decide which pods it evicts."""

    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    force: bool = False
    skip_wait_for_delete_timeout_s: int = 0

    def given(self) -> list[str]:
        """Return those that are set, as kubectl writes them."""
        return [f"--{name.replace('_', '-')}" for name in self.__struct_fields__ if getattr(self, name) is True]


class DrainVerdict(Struct, frozen=True):
    """What ``kubectl drain`` does with a pod.

    ``rule``  the rule that decided; for a pod that is evicted, the rule that a flag overrides
    ``text``  kubectl's refusal or warning, without the name of the pod
    """

    pod: Pod
    action: DrainAction = "evict"
    rule: DrainRule = ""
    text: str = ""


def judge_pods(
    pods: Iterable[Pod], flags: DrainFlags, daemon_sets: Container[str], terminating_s: Callable[[Pod], float] | None = None
) -> list[DrainVerdict]:
    """Return the verdicts on pods, in their order; see ``judge_pod``."""
    age = terminating_s or (lambda _: 0.0)
    return [judge_pod(pod, flags, daemon_sets, age(pod)) for pod in pods]


def leaving_for(pod: Pod, now_s: float) -> float:
    """Return the seconds since a pod's deletion timestamp; 0 if it has none that can be read."""
    try:
        return now_s - datetime.fromisoformat(pod.metadata.deletion_timestamp or "").timestamp()
    except ValueError:
        return 0.0


def judge_pod(pod: Pod, flags: DrainFlags, daemon_sets: Container[str], terminating_s: float = 0.0) -> DrainVerdict:
    """Return what ``kubectl drain`` does with a pod.

    ``daemon_sets``    the existing DaemonSets, as ``namespace/name``
    ``terminating_s``  seconds since the pod's deletion timestamp, if it has one
    """
    if pod.metadata.deletion_timestamp is not None and 0 < flags.skip_wait_for_delete_timeout_s < int(terminating_s):
        return DrainVerdict(pod, "stay", "terminating")
    finished = pod.status.phase in ENDED_PHASES
    warned = DrainVerdict(pod)
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind == "DaemonSet" and not finished:
        warned = _of_daemon_set(pod, owner, flags, daemon_sets)
        if warned.action != "evict":
            return warned
    if is_mirror(pod):
        return DrainVerdict(pod, "stay", "mirror")
    if not finished and any(volume.empty_dir is not None for volume in pod.spec.volumes):
        if not flags.delete_emptydir_data:
            return DrainVerdict(pod, "refuse", "emptyDir", _STORAGE_FATAL)
        warned = DrainVerdict(pod, "evict", "emptyDir", _STORAGE_WARNING)
    if not finished and owner is None:
        if not flags.force:
            return DrainVerdict(pod, "refuse", "noController", _ALONE_FATAL)
        warned = DrainVerdict(pod, "evict", "noController", _ALONE_WARNING)
    return warned


def _of_daemon_set(pod: Pod, owner: OwnerReference, flags: DrainFlags, daemon_sets: Container[str]) -> DrainVerdict:
    if f"{pod.namespace}/{owner.name}" not in daemon_sets:
        text = f'daemonsets.apps "{owner.name}" not found'
        return DrainVerdict(pod, "evict" if flags.force else "refuse", "orphan", text)
    if not flags.ignore_daemonsets:
        return DrainVerdict(pod, "refuse", "DaemonSet", _DAEMON_FATAL)
    return DrainVerdict(pod, "stay", "DaemonSet", _DAEMON_WARNING)


def refusals_as_kubectl(verdicts: Sequence[DrainVerdict]) -> list[str]:
    """Return kubectl's error messages for the pods that are refused, one for each reason."""
    grouped = _by_text(one for one in verdicts if one.action == "refuse")
    return [text if text.lower().startswith("cannot delete") else f"cannot delete {text}" for text in grouped]


def _by_text(verdicts: Iterable[DrainVerdict]) -> list[str]:
    pods: dict[str, list[str]] = {}
    for one in verdicts:
        pods.setdefault(one.text, []).append(one.pod.key)
    return [f"{text}: {', '.join(names)}" for text, names in pods.items()]
