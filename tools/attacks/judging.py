"""Check a response for faults that do not depend on the request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from moorage.api.schema.protobuf import PROTOBUF
from tools.attacks.making import Attack
from tools.attacks.wire import AttackResponse

__all__ = ["faults_of", "read_answer"]

#: Patterns of leaked program internals.
_INSIDE: Final = re.compile(
    rb"Traceback|site-packages|/moorage/|\.py\b|object at 0x|<class '|NoneType|'(?:dict|list|str|int)' object|msgspec"
)
#: Documented codes from 500: a stream that is not served, HTTP/2, a future resource version, overload.
_DOCUMENTED: Final = frozenset([501, 503, 504, 505])
_TEXT: Final = "text/plain"
#: What kube-apiserver says of a patch that removes the version of a custom object.
_UNVERSIONED: Final = b"Internal error occurred: Object 'apiVersion' is missing"


def faults_of(attack: Attack, answer: AttackResponse) -> Iterator[str]:
    """Yield a sentence for each fault of a response."""
    form = answer.headers.get("content-type", "")
    if answer.code >= 500 and answer.code not in _DOCUMENTED and not _is_foreseen(answer):
        yield f"answered {answer.code}: {answer.body[:300]!r}"
    if found := _INSIDE.search(answer.body):
        yield f"leaks program internals: {answer.body[max(0, found.start() - 60) : found.end() + 60]!r}"
    if attack.method == "HEAD" or answer.code in {204, 304} or answer.streams:
        return
    if not form:
        yield "the response has no Content-Type"
        return
    try:
        if answer.body.startswith(b'{"type":"'):  # a watch that ended at once
            for line in answer.body.splitlines():
                msgspec.json.decode(line)
            return
        document = read_answer(answer)
    except Exception as error:  # readers raise various exceptions
        yield f"is not valid {form}: {type(error).__name__} {str(error)[:100]}: {answer.body[:100]!r}"
        return
    if answer.code >= 400 and isinstance(document, dict):
        yield from _status_faults(answer, document)


def _is_foreseen(answer: AttackResponse) -> bool:
    """Return True for a 500 with a stated cause, which kube-apiserver returns as well."""
    return answer.code == 500 and (b"Internal error occurred" not in answer.body or _UNVERSIONED in answer.body)


def _status_faults(answer: AttackResponse, document: dict[str, Any]) -> Iterator[str]:
    if document.get("kind") != "Status" or document.get("status") != "Failure" or not document.get("message"):
        yield f"an error response is not a Status with a message: {answer.body[:200]!r}"
    elif document.get("code") != answer.code:
        yield f"a Status of {document.get('code')} under {answer.code}"


def read_answer(answer: AttackResponse) -> Any:
    """Return the decoded body of a response; None where this has no decoder for its media type.

    Raises  any exception for a body that does not match its media type
    """
    form = answer.headers.get("content-type", "").partition(";")[0]
    if form == "application/json":
        return msgspec.json.decode(answer.body)
    if form == "application/yaml":
        return yaml.load(answer.body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - it is the safe one
    if form == PROTOBUF:
        if not answer.body.startswith(b"k8s\0"):
            raise ValueError("does not begin as protobuf of Kubernetes")
        return None
    if form == _TEXT:
        return answer.body.decode()
    if not form.startswith("application/com.github.proto-openapi"):
        raise ValueError("a type that is not served")
    return None
