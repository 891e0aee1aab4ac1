"""What a new pod gets of its service account: a volume with a token, mounted in its containers, and secrets to pull images.

The name of the volume ends with letters that are the same for all pods of an account, so that equal pods have equal specs.

Source  kubernetes, plugin/pkg/admission/serviceaccount/admission.go
"""

from __future__ import annotations

import hashlib
from typing import Final

from moorage.api.documents.served_kinds import Document

_VOLUME: Final = "kube-api-access-"
_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_MIRROR: Final = "kubernetes.io/config.mirror"
#: The letters of generated names.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
#: How long a token lasts, in seconds: an hour and seven seconds, by which kubelets tell these volumes from others.
_LASTS_S: Final = 3607


def give_account(pod: Document, account: Document) -> None:
    """Give a new pod with defaults what its service account has for it, in place."""
    spec = pod["spec"]
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return
    mounts = spec.get("automountServiceAccountToken")
    if mounts if mounts is not None else account.get("automountServiceAccountToken") is not False:
        _mount_token(spec, account)
    secrets = [{"name": str(one.get("name") or "")} for one in account.get("imagePullSecrets") or ()]
    if secrets and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = secrets


def _mount_token(spec: Document, account: Document) -> None:
    held = next((one["name"] for one in spec.get("volumes") or () if str(one.get("name")).startswith(_VOLUME)), "")
    name = held or _VOLUME + _suffix(account)
    lacking = [
        one for part in ("initContainers", "containers") for one in spec.get(part) or ()
        if all(mount.get("mountPath") != _PATH for mount in one.get("volumeMounts") or ())
    ]  # fmt: skip
    for one in lacking:
        one["volumeMounts"] = [*(one.get("volumeMounts") or ()), {"name": name, "readOnly": True, "mountPath": _PATH}]
    if lacking and not held:
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "projected": _token_volume()}]


def _suffix(account: Document) -> str:
    digest = hashlib.sha256(str(account["metadata"].get("uid")).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])


def _token_volume() -> Document:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _LASTS_S, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": 420,
    }
