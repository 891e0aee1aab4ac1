"""Which pod has a name in a namespace: the UIDs of pods by namespace and name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.api.core import Pod


class PodNames:
    """UIDs by name, in one dictionary for each namespace, which needs no key of its own for each pod."""

    __slots__ = ("spaces",)

    def __init__(self) -> None:
        #: Namespace → name → UID.
        self.spaces: dict[str, dict[str, str]] = {}

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """Yield namespace, name and UID of each pod."""
        return ((space, name, uid) for space, names in self.spaces.items() for name, uid in names.items())

    def get(self, namespace: str, name: str) -> str | None:
        """Return the UID of the pod that has the name; None if no pod has it."""
        names = self.spaces.get(namespace)
        return None if names is None else names.get(name)

    def put(self, namespace: str, name: str, uid: str | None) -> None:
        """Give the name to a pod; None: to no pod."""
        if uid is None:
            self.spaces.get(namespace, {}).pop(name, None)
            return
        names = self.spaces.get(namespace)
        if names is None:
            self.spaces[namespace] = {name: uid}
        else:
            names[name] = uid

    def drop(self, namespace: str, name: str, uid: str) -> None:
        """Take the name from a pod, unless another one has it."""
        names = self.spaces.get(namespace)
        if names is not None and names.get(name) == uid:
            del names[name]

    def of_new(self, pods: Sequence[Pod]) -> PodNames | None:
        """Return the names of pods, if no name and no UID occurs twice among them and none of the names is known here."""
        found = PodNames()
        spaces = found.spaces
        for pod in pods:
            meta = pod.metadata
            names = spaces.get(meta.namespace)
            if names is None:
                names = spaces[meta.namespace] = {}
            names[meta.name] = meta.uid
        if len(found.uids()) < len(pods):
            return None
        known = self.spaces  # the few names are looked up among the many
        if any(space in known and not known[space].keys().isdisjoint(names) for space, names in spaces.items()):
            return None
        return found

    def uids(self) -> set[str]:
        """Return the UIDs of all pods."""
        return {uid for names in self.spaces.values() for uid in names.values()}

    def take(self, others: PodNames) -> None:
        """Add the names of other pods. ``others`` is not to be used afterwards."""
        for space, names in others.spaces.items():
            known = self.spaces.setdefault(space, names)
            if known is not names:
                known |= names
