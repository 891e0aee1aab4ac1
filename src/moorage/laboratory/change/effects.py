"""Who makes a change, and what else happens then, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from moorage.api.core import ENDED_PHASES, Node, Pod, ReplicationController
from moorage.api.workloads import DaemonSet, Deployment, ReplicaSet, StatefulSet
from moorage.basis.printable import counted, some
from moorage.framework.changes import Change
from moorage.laboratory.change.change_text import workload_of
from moorage.laboratory.plan.node_types import daemon_pods, policies_of
from moorage.laboratory.surroundings import Surroundings
from moorage.laboratory.trial.trials import Trial
from moorage.report.short_names import together

NO_PRICES: Final[Mapping[str, float]] = {}
_OWNER: Final = "the owner of "
_TEAMS: Final = {"node": "the node team", "cluster": "the cluster team", "config": "the owner of the scheduler"}
#: Workloads that say how many pods they are to have.
_SCALED: Final = (Deployment, StatefulSet, ReplicaSet, ReplicationController)
#: Changes of a pod that need no new pod.
_IN_PLACE: Final = frozenset(["ungate", "tolerate", "tolerate-own"])


def who_makes(change: Change, around: Surroundings) -> str:
    """Return who makes a change."""
    if change.verb == "wait":
        return f"the owner of finalizer {change.new}" if change.path == "terminating" and change.new else "no one"
    if change.verb == "scale":
        return f"{_OWNER}{change.path}"
    if change.target.startswith(("persistentvolumeclaim/", "resourceclaim/")):
        return f"the owner of claim {change.target.rpartition('/')[2]}"
    if change.owner == "pod":
        return f"{_OWNER}{_subject(change.target, around)}"
    return _TEAMS[change.owner]


def all_who_make(changes: Iterable[Change], around: Surroundings) -> str:
    """Return who makes some changes, the owners of several pods or workloads together."""
    names = dict.fromkeys(who_makes(change, around) for change in changes)
    owned = [name.removeprefix(_OWNER) for name in names if name.startswith(_OWNER)]
    pods = together(name for name in owned if "/" not in name)
    owners = [f"{_OWNER}{some([*pods, *(name for name in owned if '/' in name)])}"] if owned else []
    return ", ".join([*owners, *(name for name in names if not name.startswith(_OWNER))])


def _pod(target: str, around: Surroundings) -> Pod | None:
    namespace, _, name = target.removeprefix("pod/").partition("/")
    found = around.find(Pod, namespace, name)
    return found if isinstance(found, Pod) else None


def _subject(target: str, around: Surroundings) -> str:
    pod = _pod(target, around)
    workload = None if pod is None else workload_of(pod, around)
    return target.rpartition("/")[2] if workload is None else f"{workload[0].lower()}/{workload[1]}"


def effects_of(
    changes: Sequence[Change], trial: Trial, around: Surroundings, prices: Mapping[str, float] = NO_PRICES
) -> Iterator[str]:
    """Yield what happens to other pods, and what else comes with the changes; ``prices``: of a node like each of these."""
    bought = [prices[name] for one in changes if (name := str(one.new).removeprefix("like ")) in prices]
    if bought:
        yield f"price {sum(bought):g}"
    yield from _rollouts(changes, around)
    if any(one.verb.startswith("drop-") and "kubernetes.io/arch" in f"{one.path} {one.old}" for one in changes):
        yield "its images have to exist for the architecture of the node"
    if any(one.verb == "ungate" and "kueue.x-k8s.io/" in one.path for one in changes):
        yield "Kueue removes its gate when it admits the job: moorage explain workload/NAME says why it waits"
    gone = Counter(_subject(one.target, around) for one in changes if one.verb in {"evict", "move"})
    homes = some([*dict.fromkeys((*trial.homes, *(str(one.new) for one in changes if one.verb == "move")))])
    for name, count in gone.items():
        kind, _, workload = name.rpartition("/")
        if kind:
            yield f"{counted(count, 'pod')} of {workload} {'moves' if count == 1 else 'move'}{f' to {homes}' if homes else ''}"
        else:
            yield f"{name} is lost: nothing creates it again"
    if trial.displaced and not gone:
        number = len(trial.displaced)
        yield f"{counted(number, 'pod')} of lower priority {'is' if number == 1 else 'are'} evicted: {some(trial.displaced)}"
    if trial.stranded:
        yield f"{some(trial.stranded)} then {'stays' if len(trial.stranded) == 1 else 'stay'} pending"
    yield from _daemons(changes, around)


def _rollouts(changes: Iterable[Change], around: Surroundings) -> Iterator[str]:
    """Yield the workloads whose pods are created again, because their template changes."""
    seen, alone = set(), 0
    for target in dict.fromkeys(one.target for one in changes if one.owner == "pod" and one.verb not in _IN_PLACE | {"surge"}):
        pod = _pod(target, around)
        workload = None if pod is None else workload_of(pod, around)
        if pod is None or workload is None:
            alone += pod is not None
            continue
        if (pod.namespace, workload) in seen:
            continue
        seen.add((pod.namespace, workload))
        count = _replicas(pod.namespace, *workload, around)
        kind, name = workload
        yield f"rolls out {'the' if count == 1 else 'all'} {counted(count, 'pod')} of {kind.lower()}/{name}"
    if alone:
        yield f"the {'pod is' if alone == 1 else 'pods are'} created again"


def _replicas(namespace: str, kind: str, name: str, around: Surroundings) -> int:
    """Return how many pods a workload is to have; of one that does not say it, how many it has that are to stay.

    Its pods are more while a rollout is in progress.
    """
    known = next((one for one in _SCALED if one.__name__ == kind), None)
    found = None if known is None else around.find(known, namespace, name)
    if isinstance(found, _SCALED):
        return 1 if found.spec.replicas is None else found.spec.replicas
    pods = (one for one in around.all_of(Pod) if isinstance(one, Pod) and one.namespace == namespace)
    alive = (one for one in pods if one.metadata.deletion_timestamp is None and one.status.phase not in ENDED_PHASES)
    return sum(workload_of(one, around) == (kind, name) for one in alive)


def _daemons(changes: Iterable[Change], around: Surroundings) -> Iterator[str]:
    added = [one for one in changes if one.verb == "add-node"]
    daemons = list(around.all_of(DaemonSet)) if added else []
    patterns = [around.find(Node, "", str(one.new).removeprefix("like ")) for one in added]
    started = len(daemon_pods([one for one in patterns if isinstance(one, Node)], policies_of(daemons))) if daemons else 0
    if started:
        yield f"{counted(started, 'DaemonSet pod')} {'starts' if started == 1 else 'start'} there"
