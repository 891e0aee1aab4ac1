"""Differences from kube-apiserver that are intended or accepted. ``docs/run/robustness.md`` lists each by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from moorage.api.documents.served_kinds import ServedKind
from moorage.api.schema.protobuf import PROTOBUF
from moorage.cluster.apiserver.schema.request_bodies import APPLY, PATCH_TYPES
from tools.attacks.differences import AnswerDifference
from tools.attacks.making import Attack
from tools.attacks.routes import METHODS

__all__ = ["KNOWN", "UNCHANGED_RIGHTS", "known_difference"]

_Matches = Callable[[Attack, AnswerDifference], bool]
#: What the embedded server answers beyond its limits, and to browsers.
_LIMITS: Final = re.compile(
    "is not HTTP/1.1|more than 128 headers|more than 1000 parameters|nested deeper than|bodies are not read compressed"
    "|requests from pages of other|too large|the request has no valid host|requests name a path|^414|^417"
    "|nothing can be expected"
)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DENIED: Final = frozenset(["401", "403"])
#: Fields that kube-apiserver fills in, or that it describes in its own sentences.
_OWN_FIELDS: Final = re.compile(
    r"columnDefinitions|deprecated\.daemonset|serviceAccount(Name)?$|\.status\.userInfo|^\.metadata\.resourceVersion$"
)
_OWN_MANAGED: Final = re.compile(r"managedFields|^\.metadata$")
_WRITTEN_VALUE: Final = re.compile(
    r"Invalid value: |map\[|Duplicate value: |Unsupported value: |got &\{|pod updates may not change fields"
    r"|is immutable after creation|StorageError: "
)
#: Messages of Go's decoders, and differences in which of several faults they report first.
_DECODERS: Final = re.compile(
    r"wireType|unexpected EOF|cannot be handled as|json: cannot unmarshal|yaml: |UTF-8|surrogate|json parse error"
    r"|integer overflow|no kind \"|unknown conversion|failed to create typed patch object|unable to find api field in struct"
    r"|does not contain declared merge key"
)
#: Checks that come before or after that of a user's rights.
_OTHER_CHECKS: Final = ("attempting to grant RBAC permissions", "invalid timeout specified", "invalid object type")
#: The fault of an object without a name, which is found before all others.
_UNNAMED: Final = "name or generateName is required"
_NOT_TEXT: Final = re.compile(r"\\x[0-9a-f]{2}|\u202e|\\u202e|\ufffd|\xef\xbf\xbd")
_RULES: Final = re.compile(r"\.status\.(resourceRules|nonResourceRules)")


def _breaks_http(attack: Attack, difference: AnswerDifference) -> bool:
    expects = any(name == "Expect" for name, _ in attack.headers)
    path = attack.target.partition("?")[0]
    is_odd = expects or attack.method not in METHODS or "#" in attack.target or "//" in path or "%2f" in path.lower()
    is_odd = is_odd or bool(_BROKEN_ESCAPE.search(attack.target))
    return bool(attack.framing) or is_odd or bool(_LIMITS.search(difference.here)) or _is_dropped(difference)


def _is_dropped(difference: AnswerDifference) -> bool:
    """Return whether kube-apiserver closes the connection, or answers before it looks at the request."""
    return difference.aspect == "no response" and difference.there == "nothing"


def _is_text(difference: AnswerDifference) -> bool:
    return difference.aspect in {"causes", "message"}


def _is_of_own_fields(_: Attack, difference: AnswerDifference) -> bool:
    return bool(_OWN_FIELDS.search(difference.at))


def _is_of_managers(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_applied_event = about is not None and about.kind == "Event" and _form(attack) == APPLY
    return is_applied_event or bool(_OWN_MANAGED.search(difference.at))


def _form(attack: Attack) -> str:
    """Return the media type of an attack's body."""
    return dict(attack.headers).get("Content-Type", "")


def _is_of_first_fault(_: Attack, difference: AnswerDifference) -> bool:
    """Return whether both servers reject a request, for reasons that do not concern rights."""
    codes = {difference.here[:3], difference.there[:3]}
    is_other_check = any(text in difference.here + difference.there for text in _OTHER_CHECKS)
    is_unnamed = difference.aspect == "causes" and _UNNAMED in difference.here
    return is_unnamed or (difference.aspect == "code" and (is_other_check or not codes & _DENIED))


def _is_of_shown_value(_: Attack, difference: AnswerDifference) -> bool:
    return _is_text(difference) and bool(_WRITTEN_VALUE.search(difference.here) or _WRITTEN_VALUE.search(difference.there))


def _is_of_decoder(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect == "message" and bool(_DECODERS.search(difference.here) or _DECODERS.search(difference.there))


def _is_of_other_text(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect in {"message", "warnings"} and bool(_NOT_TEXT.search(difference.here + difference.there))


def _is_head(attack: Attack, _: AnswerDifference) -> bool:
    return attack.method == "HEAD"


def _is_document(attack: Attack, _: AnswerDifference) -> bool:
    return attack.what.route.about is None


def _is_of_encoding(attack: Attack, difference: AnswerDifference) -> bool:
    accept = next((value for name, value in attack.headers if name == "Accept"), "")
    return difference.aspect == "content type" and "," in accept and difference.here == "application/json"


def _is_of_token(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect == "message" and difference.here.startswith("invalid continue token")


def _is_applied_deletion(attack: Attack, difference: AnswerDifference) -> bool:
    return (_form(attack) == APPLY or attack.method == "PUT") and difference.at.endswith(
        (".deletionTimestamp", ".deletionGracePeriodSeconds")
    )


def _is_of_fault_order(_: Attack, difference: AnswerDifference) -> bool:
    """Return whether two messages list the same faults. The causes of both are equal, or they would differ instead."""
    parts = [sorted(re.split(r", (?=[a-z])", text.partition("is invalid: [")[2].rstrip("]"))) for text in _sides(difference)]
    return difference.aspect == "message" and len(parts[0]) > 1 and parts[0] == parts[1]


def _sides(difference: AnswerDifference) -> tuple[str, str]:
    return difference.here, difference.there


def _is_of_map_paths(attack: Attack, difference: AnswerDifference) -> bool:
    """Return whether the same unknown fields of a strategic merge patch are named, by kube-apiserver without keys of maps."""
    counts = [text.count("unknown field") for text in _sides(difference)]
    is_shorter = len(difference.there) < len(difference.here)
    return _form(attack) == PATCH_TYPES[2] and difference.aspect == "warnings" and counts[0] == counts[1] > 0 and is_shorter


def _is_of_definition_form(attack: Attack, _: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_definition = isinstance(about, ServedKind) and about.native == "CustomResourceDefinition"
    return is_definition and _form(attack) == PROTOBUF


def _is_deleted_definition(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_definition = isinstance(about, ServedKind) and about.native == "CustomResourceDefinition" and attack.method == "DELETE"
    return is_definition and (difference.aspect == "state" or difference.at.endswith(".deletionGracePeriodSeconds"))


def _is_of_range(attack: Attack, difference: AnswerDifference) -> bool:
    """Return whether kube-apiserver cuts a number to 32 bits, or drops it in a status, where it is refused here."""
    if _form(attack) in {APPLY, PROTOBUF} and difference.aspect == "rejected here only":
        return "of type int32" in difference.here
    return _form(attack) == PATCH_TYPES[2] and "is invalid: patch: Invalid value" in difference.here


def _is_of_unchanged_rights(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_right = isinstance(about, ServedKind) and about.group == "rbac.authorization.k8s.io" and attack.method == "PUT"
    return is_right and difference.aspect == "accepted here only"


def _is_table_of_part(attack: Attack, difference: AnswerDifference) -> bool:
    about, part = attack.what.route.about, attack.what.route.subresource
    is_group = isinstance(about, ServedKind) and about.native == "PodGroup" and part == "status"
    takes_table = any(name == "Accept" and "as=Table" in value for name, value in attack.headers)
    return takes_table and (is_group or part == "ephemeralcontainers")


def _is_custom_scale(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_custom = isinstance(about, ServedKind) and about.custom is not None
    is_refused = difference.there.startswith("406") or difference.here.startswith("406")
    return is_custom and attack.what.route.subresource == "scale" and is_refused


def _is_late(attack: Attack, difference: AnswerDifference) -> bool:
    takes_list = any(name == "Accept" and "PartialObjectMetadata" in value for name, value in attack.headers)
    return takes_list and (difference.aspect == "state" or difference.here.startswith("406"))


def _is_of_conditions(attack: Attack, difference: AnswerDifference) -> bool:
    """Return whether a kube-apiserver has not set the conditions of a definition yet."""
    about = attack.what.route.about
    is_definition = isinstance(about, ServedKind) and about.native == "CustomResourceDefinition"
    return is_definition and bool(re.search(r"\.status\.(conditions|acceptedNames)", difference.at))


def _is_of_huge_number(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect == "rejected here only" and "is out of range" in difference.here


def _is_of_binding(attack: Attack, difference: AnswerDifference) -> bool:
    return attack.what.route.subresource == "binding" and difference.aspect == "warnings"


def _is_of_tokens(attack: Attack, difference: AnswerDifference) -> bool:
    return attack.what.route.subresource == "token" and difference.aspect == "body"


def _is_not_utf8(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect == "rejected here only" and "not UTF-8" in difference.here


def _is_of_revision(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    return about is not None and about.kind == "ControllerRevision" and "field is immutable" in difference.there


def _is_of_system_class(_: Attack, difference: AnswerDifference) -> bool:
    return difference.aspect == "rejected here only" and "this is a system priority class" in difference.here


def _is_of_unserved_path(attack: Attack, difference: AnswerDifference) -> bool:
    about = attack.what.route.about
    is_custom = isinstance(about, ServedKind) and about.custom is not None
    if is_custom and difference.here == "the server could not find the requested resource":
        return True
    return "404 page not found" in difference.there or (difference.aspect, difference.there[:10]) == (
        "content type",
        "text/plain",
    )


def _is_of_rules(_: Attack, difference: AnswerDifference) -> bool:
    return bool(_RULES.search(difference.at))


#: Differences for which the objects must be equal nevertheless.
UNCHANGED_RIGHTS: Final = "unchanged roles and bindings"
#: The known differences, by their names in the documentation.
KNOWN: Final[Mapping[str, _Matches]] = {
    "broken HTTP and exceeded limits": _breaks_http,
    "documents without objects": _is_document,
    "HEAD": _is_head,
    "the encoding, if a client accepts several": _is_of_encoding,
    "the first of several faults": _is_of_first_fault,
    "values shown in messages": _is_of_shown_value,
    "texts of decoders": _is_of_decoder,
    "names that are not UTF-8": _is_of_other_text,
    "continue tokens": _is_of_token,
    "fields that Kubernetes fills in": _is_of_own_fields,
    "managed fields of events, reviews and daemon sets": _is_of_managers,
    "metadata of deletions in applied and put objects": _is_applied_deletion,
    "the order of several faults": _is_of_fault_order,
    "definitions in protobuf": _is_of_definition_form,
    "keys of maps in paths of strategic merge patches": _is_of_map_paths,
    "numbers beyond 32 bits": _is_of_range,
    UNCHANGED_RIGHTS: _is_of_unchanged_rights,
    "tables of the status of pod groups and of ephemeral containers": _is_table_of_part,
    "the deletion of definitions": _is_deleted_definition,
    "forms of scales of custom kinds": _is_custom_scale,
    "conditions of definitions": _is_of_conditions,
    "numbers beyond doubles": _is_of_huge_number,
    "warnings about bindings": _is_of_binding,
    "the order of rules": _is_of_rules,
    "answers that the client cannot take": _is_late,
    "token requests": _is_of_tokens,
    "bodies that are not UTF-8": _is_not_utf8,
    "data of revisions": _is_of_revision,
    "system priority classes": _is_of_system_class,
    "paths of custom kinds that are not served": _is_of_unserved_path,
}


def known_difference(attack: Attack, difference: AnswerDifference) -> str:
    """Return the name of a known difference, "" if it is not known."""
    return next((name for name, matches in KNOWN.items() if matches(attack, difference)), "")
