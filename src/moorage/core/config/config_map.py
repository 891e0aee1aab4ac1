"""A scheduler's configuration inside a ConfigMap, as clusters keep it and ``kubectl get configmap NAME -o yaml`` prints it.

The entry of ``data`` or ``binaryData`` that is a KubeSchedulerConfiguration or a Policy is the configuration. If there are
several, or none, the error says how to take one out.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Iterator
from typing import Any, Final

from moorage.api.reading.manifests import read_documents
from moorage.core.config.document_reader import KIND
from moorage.errors import InputError

_KINDS: Final = (KIND, "Policy")


def taken_out(text: bytes, where: str) -> tuple[bytes, str]:
    """Return the configuration in the ConfigMaps of a text, and its name in messages; any other text as it is.

    Raises  InputError if the text is ConfigMaps alone, and not exactly one of their entries is a configuration
    """
    if b"ConfigMap" not in text:
        return text, where
    try:
        objects = [one for document in read_documents(text, where) for one in _items(document.data)]
    except InputError:
        return text, where  # the decoder says what is wrong with it
    maps = [one for one in objects if one.get("kind") == "ConfigMap" and one.get("apiVersion") == "v1"]
    found = [(one, name, entry) for one in maps for name, entry in _entries(one) if _is_configuration(entry)]
    if len(found) == 1 and not any(one.get("kind") in _KINDS for one in objects):
        _, name, entry = found[0]
        return entry, f"{where}: entry {name}"
    if len(maps) < len(objects) or not maps:
        return text, where
    if not found:
        names = ", ".join(name for one in maps for name, _ in _entries(one)) or "none"
        raise InputError(f"{where}: no entry of the ConfigMap is a {KIND} or a Policy; its entries: {names}")
    names = " and ".join(name for _, name, _ in found)
    raise InputError(f"{where}: the entries {names} are configurations; take one out: {_command(found[0][0], found[0][1])}")


def _items(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict) and data.get("kind") in {"List", "ConfigMapList"} and isinstance(data.get("items"), list):
        yield from (one for one in data["items"] if isinstance(one, dict))
    elif isinstance(data, dict):
        yield data


def _entries(config_map: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    data, binary = config_map.get("data"), config_map.get("binaryData")
    if isinstance(data, dict):
        yield from ((str(name), one.encode("utf-8", "surrogatepass")) for name, one in data.items() if isinstance(one, str))
    for name, one in binary.items() if isinstance(binary, dict) else ():
        try:
            yield str(name), base64.b64decode(one, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue


def _is_configuration(entry: bytes) -> bool:
    if not any(kind.encode() in entry for kind in _KINDS):
        return False
    try:
        documents = [document.data for document in read_documents(entry, "")]
    except InputError:
        return b"kubescheduler.config.k8s.io" in entry
    return any(isinstance(one, dict) and one.get("kind") in _KINDS for one in documents)


def _command(config_map: dict[str, Any], name: str) -> str:
    metadata = config_map.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    path = name.replace(".", r"\.")
    words = ["kubectl", "get", "configmap", str(known.get("name", "NAME")), "-n", str(known.get("namespace", "default"))]
    return shlex.join([*words, "-o", f"jsonpath={{.data.{path}}}"])
