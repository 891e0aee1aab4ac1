"""Call the webhook of a definition, which converts the objects of a custom kind between its versions.

Only a webhook with a ``url`` can be called: pods do not run here, so no service answers. Objects of the storage version need no
conversion; for others the error says what would work. The call blocks the server, so it has little time.

Source  apiextensions-apiserver, pkg/apiserver/conversion/webhook_converter.go
"""

from __future__ import annotations

import copy
import uuid
from collections import OrderedDict
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from moorage.api.documents.served_kinds import ConversionWebhook, Document, ServedKind
from moorage.api.documents.statuses import unknown

#: The time of one call. kube-apiserver waits for 30 s; there other requests go on meanwhile.
_TIMEOUT_S: Final = 5.0
#: Maximum number of bytes of an answer: an object may have 1.5 MiB.
_LARGEST: Final = 8 << 20
_GROUP: Final = "apiextensions.k8s.io"
#: Fields of metadata that a webhook may change.
_FREE: Final = ("labels", "annotations")
#: What a conversion must leave: the field of metadata, and its name in messages.
_KEPT: Final = {"name": "name", "namespace": "namespace", "uid": "UID"}
#: Converted objects that are kept, as lists and watches ask for the same ones again.
_MOST_HELD: Final = 2000
_Key = tuple[ConversionWebhook, str, str, str]
_held: Final[OrderedDict[_Key, bytes]] = OrderedDict()


def convert_by_webhook(webhook: ConversionWebhook, kind: ServedKind, source: ServedKind, document: Document) -> Document:
    """Return an object of the kind ``source`` in the version of ``kind``.

    Raises  ApiError 500 if the webhook cannot be called, refuses, or changes what it must leave
    """
    metadata = document["metadata"]
    text = msgspec.json.encode(document)
    key = (webhook, kind.api_version, metadata.get("uid", ""), text.decode())
    if (known := _held.get(key)) is not None:
        _held.move_to_end(key)
        return _decoded(known)
    try:
        made = _called(webhook, kind, document)
    except _FailedError as error:
        named = f"{source.group}/{source.version}, Kind={source.kind}"
        raise unknown(f"conversion webhook for {named} {error}") from None
    _held[key] = msgspec.json.encode(made)
    if len(_held) > _MOST_HELD:
        _held.popitem(last=False)
    return made


class _FailedError(Exception):
    """A conversion failed; the message says why."""


def _called(webhook: ConversionWebhook, kind: ServedKind, document: Document) -> Document:
    version = next((one for one in webhook.reviews if one in {"v1", "v1beta1"}), None)
    if version is None:
        raise _FailedError("failed: no supported conversion review versions")
    asked = str(uuid.uuid4())
    request = {"uid": asked, "desiredAPIVersion": kind.api_version, "objects": [document]}
    review = {"kind": "ConversionReview", "apiVersion": f"{_GROUP}/{version}", "request": request}
    response = _response(_posted(webhook, msgspec.json.encode(review)), version, asked)
    converted = response.get("convertedObjects")
    found = len(converted) if isinstance(converted, list) else 0
    if not isinstance(converted, list) or found != 1:
        raise _FailedError(f"returned {found} objects, expected 1")
    return _checked(kind, document, converted[0])


def _posted(webhook: ConversionWebhook, body: bytes) -> Any:
    import http.client  # loaded only where a webhook is called
    import ssl

    if webhook.service:
        how = "the pods of this cluster do not run, so no service answers; write objects in the storage version, or run"
        raise _FailedError(f'failed: Post "{webhook.service}": {how} the webhook outside and set clientConfig.url')
    address = urlsplit(webhook.url)
    try:
        context = ssl.create_default_context(cadata=webhook.authority or None)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S, context=context)
        try:
            path = f"{address.path or '/'}{f'?{address.query}' if address.query else ''}"
            connection.request("POST", path, body, {"Content-Type": "application/json", "Accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read(_LARGEST + 1)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _FailedError(f'failed: Post "{webhook.url}": {error}') from None
    if answer.status >= http.client.BAD_REQUEST:
        raise _FailedError(f"failed: the server answered {answer.status} {answer.reason}")
    if len(text) > _LARGEST:
        raise _FailedError(f"failed: the answer has more than {_LARGEST} bytes")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _FailedError(f"failed: the answer is not JSON: {error}") from None


def _response(review: Any, version: str, asked: str) -> Document:
    """Return the response in a review that belongs to the request and is a success."""
    response = review.get("response") if isinstance(review, dict) else None
    if version == "v1":
        head = tuple(str(review.get(name) or "") for name in ("apiVersion", "kind")) if isinstance(review, dict) else ("", "")
        if head != (f"{_GROUP}/v1", "ConversionReview"):
            raise _FailedError(f"failed: expected webhook response of {_GROUP}/v1, Kind=ConversionReview, got {' '.join(head)}")
    if not isinstance(response, dict):
        raise _FailedError("failed: no response provided")
    if version == "v1" and response.get("uid") != asked:
        raise _FailedError(f'failed: expected response.uid="{asked}", got "{response.get("uid", "")}"')
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("status") != "Success":
        why = result.get("message") or f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise _FailedError(f"failed: {why}")
    return response


def _checked(kind: ServedKind, before: Document, converted: Any) -> Document:
    """Return a converted object with the metadata that it had, labels and annotations apart."""
    found = [converted.get(name) for name in ("apiVersion", "kind")] if isinstance(converted, dict) else [None, None]
    if not isinstance(converted, dict) or found[0] != kind.api_version:
        why = f"invalid groupVersion (expected {kind.api_version}, received {found[0]})"
        raise _FailedError(f"returned invalid object at index 0: {why}")
    if found[1] != kind.kind:
        raise _FailedError(f"returned invalid object at index 0: invalid kind (expected {kind.kind}, received {found[1]})")
    metadata = converted.get("metadata")
    if not isinstance(metadata, dict):
        raise _FailedError("returned invalid metadata: missing metadata in converted object")
    held = before["metadata"]
    for name, shown in _KEPT.items():
        if metadata.get(name, "") != held.get(name, ""):
            what = f"must have the same {shown}: {held.get(name, '')} != {metadata.get(name, '')}"
            raise _FailedError(f"returned invalid object: {what}")
    made = {name: one for name, one in copy.deepcopy(held).items() if name not in _FREE}
    for name in _FREE:
        given = metadata.get(name)
        if given is None:
            continue
        if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
            raise _FailedError(f"returned invalid metadata: metadata.{name} must be a map of strings")
        made[name] = given
    return {**converted, "metadata": made}


def _decoded(text: bytes) -> Document:
    made: Document = msgspec.json.decode(text)
    return made
