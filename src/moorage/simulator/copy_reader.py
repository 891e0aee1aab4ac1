"""Reads pods that are copies of valid ones: they share all of the spec, labels and owners, and need not be checked again.

Most pods of a dump are copies. A copy has its own name, node, annotations and status, which are read and checked; its spec with
all defaults is that of the first pod.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from moorage.api.core import Pod, PodSpec
from moorage.api.json_tree import UNREADABLE
from moorage.api.pod_decoding import PodDecoder
from moorage.api.validation import PodValidator

__all__ = ["CopyReader"]

#: How many different pods are remembered.
_MOST: Final = 4096


class CopyReader:
    """Reads copies of the pods that ``learn`` was called with.

    ``validator`` validated these pods; None if pods are not validated.
    """

    def __init__(self, decoder: PodDecoder, validator: PodValidator | None) -> None:
        self._decoder = decoder
        self._validator = validator
        #: What copies share, by identity → the same objects, so that they stay alive, and the complete spec without its node.
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], PodSpec]] = {}
        #: The key and the parts of the pod that ``read`` did not know, and its node.
        self._missed: tuple[tuple[Any, ...], tuple[Any, ...], str] | None = None

    def read(self, text: msgspec.Raw | bytes) -> Pod | None:
        """Return a pod that an API server printed, if it is a copy; None for all others, which need a full check."""
        self._missed = None
        try:
            read = self._decoder.text_of(text)
            metadata = read.metadata
            if not (metadata.name and metadata.namespace and metadata.uid and metadata.creation_timestamp):
                return None
            self._decoder.share_metadata(metadata)
            template, node = self._decoder.template(read)
            labels, owners = metadata.labels, metadata.owner_references
            key = (id(template), id(labels) if labels else 0, id(owners), metadata.namespace, metadata.finalizers, not node)
            known = self._known.get(key)
            if known is None:
                self._missed = key, (template, labels, owners), node
                return None
            spec = known[1]
            if node:
                spec = spec.__copy__()  # type: ignore[attr-defined]  # faster than replace()
                force_setattr(spec, "node_name", node)
            pod = Pod(metadata=metadata, spec=spec, status=self._decoder.status(read))
        except UNREADABLE:
            return None
        return pod if self._validator is None or self._validator.has_plain_fields(pod) else None

    def learn(self, pod: Pod) -> None:
        """Remember the pod that ``read`` did not know, now that it is complete and valid."""
        if self._missed is None:
            return
        key, parts, node = self._missed
        self._missed = None
        if pod.spec.node_name != node:
            return
        spec = pod.spec
        if node:
            spec = spec.__copy__()  # type: ignore[attr-defined]
            force_setattr(spec, "node_name", "")
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = parts, spec
