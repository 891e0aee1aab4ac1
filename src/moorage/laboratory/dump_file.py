"""A dump as a file: a List of the objects that scheduling reads, and a record of how it was taken.

Only fields that scheduling reads are written, so environments, arguments, data and managed fields never get into a dump. Only
annotations that scheduling or a controller reads remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.kinds import Kind
from moorage.api.workloads import CronJob, StatefulSet
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.kinds import KINDS, find_kind
from moorage.basis.inputs.objects import find_objects
from moorage.laboratory.live_dump import Unread
from moorage.simulator.cluster_input import DUMP_RECORD, DumpRecord, UnreadKind

__all__ = ["DumpWriter"]

#: Annotations that scheduling or a controller reads.
_READ: Final = frozenset({
    "batch.kubernetes.io/job-completion-index",
    "controller.kubernetes.io/pod-deletion-cost",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deployment.kubernetes.io/revision",
    "kubernetes.io/config.mirror",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "pv.kubernetes.io/provisioned-by",
    "resource.kubernetes.io/extended-resource-claim",
    "resource.kubernetes.io/pod-claim-name",
    "scheduler.alpha.kubernetes.io/preferAvoidPods",
    "storage.alpha.kubernetes.io/migrated-plugins",
    "storageclass.beta.kubernetes.io/is-default-class",
    "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-class",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
})  # fmt: skip
_OURS: Final = "moorage.dev/"
_DECODERS: Final = {kind.slot: msgspec.json.Decoder(kind.type) for kind in KINDS}
_encode = msgspec.json.Encoder().encode


class DumpWriter:
    """Collects the objects of pages as they arrive; ``kept`` names annotations to keep in addition."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._kept = _READ | frozenset(kept)
        self._items: list[bytes] = []
        #: Kind → number of objects.
        self.counts: dict[str, int] = {}

    def take(self, page: InputFile) -> None:
        """Add the objects of a page.

        Raises  InputError for what cannot be read
        """
        for found in find_objects(page):
            kind = find_kind(found.api_version, found.kind)
            payload = found.payload if isinstance(found.payload, dict) else bytes(found.payload)
            if kind is None:
                item = _encode(self._custom(found.api_version, found.kind, payload))
            else:
                obj = msgspec.convert(payload, kind.type) if isinstance(payload, dict) else _DECODERS[kind.slot].decode(payload)
                item = _with_head(found.api_version, kind, _encode(self._cleaned(obj)))
            self._items.append(item)
            self.counts[found.kind] = self.counts.get(found.kind, 0) + 1

    def _custom(self, version: str, kind: str, payload: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """Return an object of a custom kind without managed fields and without annotations that are not read."""
        document: dict[str, Any] = msgspec.json.decode(payload) if isinstance(payload, bytes) else dict(payload)
        metadata = dict(document.get("metadata") or {})
        metadata.pop("managedFields", None)
        metadata["annotations"] = self._annotations(metadata.get("annotations") or {})
        return {"apiVersion": version, "kind": kind, **document, "metadata": metadata}

    def _annotations(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in given.items() if name in self._kept or name.startswith(_OURS)}

    def _cleaned(self, obj: Any) -> Any:
        """Return an object without annotations that are not read, in its templates too."""
        spec = getattr(obj, "spec", None)
        if isinstance(obj, CronJob):
            job = replace(obj.spec.job_template, metadata=self._bare(obj.spec.job_template.metadata))
            job = replace(job, spec=replace(job.spec, template=self._bared(job.spec.template)))
            obj = replace(obj, spec=replace(obj.spec, job_template=job))
        elif isinstance(obj, Pod):
            obj = replace(obj, spec=self._pod_spec(obj.spec))
        elif spec is not None and hasattr(spec, "template") and spec.template is not None:
            obj = replace(obj, spec=replace(spec, template=self._bared(spec.template)))
        if isinstance(obj, StatefulSet) and obj.spec.volume_claim_templates:
            claims = tuple(self._plain(one) for one in obj.spec.volume_claim_templates)
            obj = replace(obj, spec=replace(obj.spec, volume_claim_templates=claims))
        return replace(obj, metadata=self._bare(obj.metadata))

    def _bare(self, metadata: Any) -> Any:
        return replace(metadata, annotations=self._annotations(metadata.annotations)) if metadata.annotations else metadata

    def _bared(self, template: Any) -> Any:
        """Return a pod template without annotations that are not read."""
        return replace(template, metadata=self._bare(template.metadata), spec=self._pod_spec(template.spec))

    def _pod_spec(self, spec: Any) -> Any:
        """Return a pod's spec, with only those annotations of claim templates that are read."""
        if not any(volume.ephemeral is not None for volume in spec.volumes):
            return spec
        volumes = tuple(self._volume(volume) for volume in spec.volumes)
        return replace(spec, volumes=volumes)

    def _volume(self, volume: Any) -> Any:
        template = None if volume.ephemeral is None else volume.ephemeral.volume_claim_template
        if template is None:
            return volume
        return replace(volume, ephemeral=replace(volume.ephemeral, volume_claim_template=self._plain(template)))

    def _plain(self, template: Mapping[str, Any]) -> dict[str, Any]:
        metadata = dict(template.get("metadata") or {})
        metadata.pop("managedFields", None)
        if metadata.get("annotations"):
            metadata["annotations"] = self._annotations(metadata["annotations"])
        return {**template, "metadata": metadata}

    def parts(self, server: str, taken_at: str, missing: Iterable[Unread], version: str = "") -> Iterator[bytes]:
        """Yield the file in parts: one line for each object, the record first. ``version``: that of the API server."""
        record = DumpRecord(
            taken_at=taken_at,
            server=server,
            server_version=version,
            not_read=tuple(UnreadKind(one.plural, one.why) for one in missing),
        )
        head = {"apiVersion": DUMP_RECORD.api_version, "kind": DUMP_RECORD.kind, **msgspec.to_builtins(record)}
        yield b'{"apiVersion":"v1","kind":"List","items":[\n'
        yield _encode(head)
        for item in self._items:
            yield b",\n"
            yield item
        yield b"\n]}\n"


def _with_head(version: str, kind: Kind, body: bytes) -> bytes:
    """Return the JSON of an object with its apiVersion and kind."""
    head = b'{"apiVersion":%b,"kind":%b' % (_encode(version), _encode(kind.name))
    return head + (b"," if len(body) > 2 else b"") + body[1:]
