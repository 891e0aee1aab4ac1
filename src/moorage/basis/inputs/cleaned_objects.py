"""Objects as logs and dumps keep them: only what scheduling reads, without environments, arguments, data and managed fields.

Objects are decoded with the fields that scheduling reads, so nothing else is left of them; of annotations, those remain that
scheduling or a controller reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.devices import ResourceClaimTemplate
from moorage.api.kinds import Kind
from moorage.api.workloads import CronJob, StatefulSet
from moorage.basis import text_of
from moorage.basis.inputs.kept_fields import kept, kept_of_custom, template_metadata

#: Annotations that scheduling or a controller reads.
_READ: Final = frozenset(text_of("moorage.basis.inputs", "annotations.txt").split())
_OURS: Final = "moorage.dev/"
_encode = msgspec.json.Encoder().encode


class ObjectCleaner:
    """Writes objects as JSON. ``kept`` names annotations to keep in addition."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        self._kept = _READ | frozenset(kept)

    def json(self, kind: Kind, api_version: str, obj: Any) -> bytes:
        """Return the JSON of a decoded object of a built-in kind, with its apiVersion and kind."""
        return _with_head(api_version, kind, _encode(self.cleaned(obj)))

    def custom(self, version: str, kind: str, payload: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """Return an object of a custom kind without managed fields and without annotations that are not read."""
        document: dict[str, Any] = msgspec.json.decode(payload) if isinstance(payload, bytes) else dict(payload)
        document = kept_of_custom(document)
        metadata = dict(document.get("metadata") or {})
        metadata["annotations"] = self._annotations(metadata.get("annotations") or {})
        return {"apiVersion": version, "kind": kind, **document, "metadata": metadata}

    def _annotations(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in given.items() if name in self._kept or name.startswith(_OURS)}

    def cleaned(self, obj: Any) -> Any:
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
        elif isinstance(obj, ResourceClaimTemplate):
            obj = replace(obj, spec=replace(obj.spec, metadata=self._bare(obj.spec.metadata)))
        return kept(replace(obj, metadata=self._bare(obj.metadata)))

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
        metadata = template_metadata(template.get("metadata") or {})
        if metadata.get("annotations"):
            metadata["annotations"] = self._annotations(metadata["annotations"])
        return {**template, "metadata": metadata}


def _with_head(version: str, kind: Kind, body: bytes) -> bytes:
    """Return the JSON of an object with its apiVersion and kind."""
    head = b'{"apiVersion":%b,"kind":%b' % (_encode(version), _encode(kind.name))
    return head + (b"," if len(body) > 2 else b"") + body[1:]
