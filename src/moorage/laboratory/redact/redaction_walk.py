"""Redact one object: keep fields that are known to be harmless, and replace all others by tokens.

The texts of fields that ``rules.toml`` does not list become tokens. So a new field cannot leak.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from moorage.api.cel.bounds import SourceError
from moorage.api.cel.parser import Token, scan, unquoted
from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.errors import InputError
from moorage.laboratory.redact.redaction_tokens import RULES, Tokens, is_well_known
from moorage.rules.volumes.csi_migration import driver_of, in_tree_plugins

#: Name of an object, by kind, namespace and name.
NameOf: TypeAlias = Callable[[str, str, str], str]

_FIELDS: Final[Mapping[str, Any]] = RULES["fields"]
_KEPT, _DROPPED, _AMOUNTS, _TIMES, _DRIVERS = (
    frozenset(_FIELDS[what]) for what in ("kept", "dropped", "amounts", "times", "drivers")
)
_NAMES: Final[Mapping[str, str]] = _FIELDS["names"]
#: Field → the method of ``Tokens`` for its texts.
_TOKENS: Final[Mapping[str, str]] = {field: name for name, fields in _FIELDS["tokens"].items() for field in fields}
#: Field → the words that it may hold; any other text becomes a token.
_WORDS: Final = {field: frozenset(words) for field, words in RULES["vocabulary"].items()}
_PLAIN_ANNOTATIONS: Final = frozenset(RULES["annotations"]["kept"])
_PLAIN_ANNOTATION: Final = re.compile(r"-?[0-9]{1,18}|true|false|yes|no|")
_KUEUE: Final = "kueue.x-k8s.io/"
#: Scheduling gates that Kueue sets and takes away.
_GATES: Final = frozenset({f"{_KUEUE}admission", f"{_KUEUE}topology", f"{_KUEUE}elastic-job"})
#: Lengths of time, and answers of admission checks, in annotations of ours.
_OWN_ANNOTATION: Final = re.compile(r"(?:[0-9.]+(?:ms|[smh]))+|(?:Ready|Retry|Rejected)(?:,\s?(?:Ready|Retry|Rejected))*")
_FINALIZERS: Final = frozenset(RULES["resources"]["finalizers"])
_CRON: Final = re.compile(
    r"(?:@(?:yearly|annually|monthly|weekly|daily|midnight|hourly))|(?:(?:[0-9*/,?LW#-]|SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL"
    r"|AUG|SEP|OCT|NOV|DEC)+ ?)+",
    re.IGNORECASE,
)
_PLAIN_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}")
#: Groups of the API that all clusters share, and kinds of them and of autoscalers and queues.
_GROUPS: Final = frozenset(one.group for one in SERVED)
_KINDS: Final = frozenset(one.kind for one in SERVED)
_RESOURCES: Final = frozenset(one.resource for one in SERVED)
_LOOKS_INSIDE, _READS_AMOUNT = (frozenset(RULES["cel"][what]) for what in ("looks_inside", "reads_amounts"))
#: An amount, or a version without words.
_AMOUNT: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[numkKMGTPE]i?|[eE][+-]?[0-9]{1,3})?|v?[0-9]+\.[0-9]+\.[0-9]+")
#: Fields of structs that have the name of a map of amounts elsewhere.
_PARTS: Final = frozenset({"claims", "limits", "podFixed", "requests"})
_API_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
#: Kinds of Azure's disks.
_DISKS: Final = frozenset({"Dedicated", "Managed", "Shared"})
#: Binds a variable, whose name comes next.
_BIND: Final = ["cel", ".", "bind", "("]
KNOWN_DRIVERS: Final = frozenset({*in_tree_plugins(), "kubernetes.io/no-provisioner"}) | {
    driver for plugin in in_tree_plugins() if (driver := driver_of(plugin)) is not None
}


class Walker:
    """Redacts the fields of one object. ``name_of`` returns the token of an object's name."""

    def __init__(self, tokens: Tokens, name_of: NameOf, kind: str, namespace: str) -> None:
        self._tokens = tokens
        self._name_of = name_of
        self._own_kind = kind
        self._namespace = namespace

    def object(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object without names."""
        return self._map(document, "")

    def _map(self, given: Mapping[str, Any], parent: str) -> dict[str, Any]:
        made = {key: self._field(key, value, parent) for key, value in given.items() if key not in _DROPPED}
        return {key: value for key, value in made.items() if value is not None}

    def _field(self, key: str, value: Any, parent: str) -> Any:  # noqa: PLR0911 - a table of cases
        """Return the value of a field; None for one that is left out."""
        if value is None or isinstance(value, bool | int | float):
            return value
        special = _SPECIAL.get(key)
        if special is not None:
            return special(self, value, parent)
        if key in _TIMES:
            return self._tokens.time(str(value)) or None
        if key in _KEPT:
            return value
        if key in _WORDS and isinstance(value, str):
            return self._word(key, value)
        if key in _AMOUNTS and isinstance(value, dict):
            is_struct = key in {"overhead", "resources"} and value.keys() <= _PARTS
            return self._map(value, key) if is_struct else self._resources(key, value)
        if key in _AMOUNTS and isinstance(value, str) and _AMOUNT.fullmatch(value):
            return value
        if isinstance(value, dict):
            return self._map(value, key)
        if isinstance(value, list | tuple):
            return [self._map(one, key) if isinstance(one, dict) else self._field(key, one, parent) for one in value]
        return self._text(key, str(value))

    def _text(self, key: str, value: str) -> str:
        if key == "name" and value in _GATES:
            return value
        if key in _NAMES:
            return self._name_of(_NAMES[key], self._namespace, value)
        if key in _TOKENS:
            return str(getattr(self._tokens, _TOKENS[key])(value))
        if key in _DRIVERS:
            return value if value in KNOWN_DRIVERS else self._tokens.of("x", value)
        return self._tokens.parts(value)

    def _word(self, key: str, value: str) -> str:
        return value if not value or value in _WORDS[key] else self._tokens.parts(value)

    # -- words of the API --------------------------------------------------------------------------------------------------

    def _schedule(self, value: Any, parent: str) -> str:
        return str(value) if _CRON.fullmatch(str(value)) else "0 0 * * *"

    def _time_zone(self, value: Any, parent: str) -> str:
        return "Etc/UTC"  # it says where the cluster is; times are shifted anyway

    def _api_version(self, value: Any, parent: str) -> str:
        group, slash, version = str(value).rpartition("/")
        own = version if _API_VERSION.fullmatch(version) else self._tokens.of("x", version)
        return f"{self._tokens.group(group)}{slash}{own}"

    def _api_group(self, value: Any, parent: str) -> str:
        return self._tokens.group(str(value))

    def _kind(self, value: Any, parent: str) -> str:
        return str(value) if value in _KINDS or value in _WORDS["type"] or value in _DISKS else self._tokens.of("x", str(value))

    def _version(self, value: Any, parent: str) -> Any:
        if isinstance(value, list | tuple):
            return [self._version(one, parent) for one in value]
        found = _PLAIN_VERSION.match(str(value))
        rest = str(value)[found.end() :] if found else str(value)
        return str(value) if found and not rest else f"{found[0] if found else '0.0.0'}-{self._tokens.of('x', rest)}"

    def _resource_kind(self, value: Any, parent: str) -> str:
        return str(value) if value in _RESOURCES else self._tokens.of("x", str(value))

    def _opaque(self, value: Any, parent: str) -> Any:
        return {"driver": self._text("driver", str(value.get("driver") or "")), "parameters": {}}

    # -- metadata and references -------------------------------------------------------------------------------------------

    def _metadata(self, value: Any, parent: str) -> dict[str, Any]:
        """Redact the metadata of the object itself, or of a template in it."""
        made: dict[str, Any] = {}
        for key, held in value.items():
            if key == "name":
                made[key] = self._own_name(str(held), parent)
            elif key == "generateName":
                made[key] = f"{self._tokens.of('w', str(held).rstrip('-'))}-"
            elif key == "uid":
                made[key] = self._tokens.uid(str(held))
            elif key == "labels":
                made[key] = self._tokens.labels(held)
            elif key == "annotations":
                made[key] = self._annotations(held)
            elif key == "ownerReferences":
                made[key] = [self._owner(one) for one in held]
            elif key == "finalizers":
                made[key] = [one if is_well_known(one) or one in _FINALIZERS else self._tokens.parts(one) for one in held]
            elif key not in _DROPPED:
                made[key] = self._field(key, held, "metadata")
        return {key: held for key, held in made.items() if held not in (None, {}, [])}

    def _own_name(self, name: str, parent: str) -> str:
        if not parent:
            return self._name_of(self._own_kind, self._namespace, name)
        return self._tokens.of("c", name)  # the template of a claim; a volume has its name

    def _owner(self, owner: Mapping[str, Any]) -> dict[str, Any]:
        made = {
            "apiVersion": self._api_version(owner.get("apiVersion", ""), ""),
            "kind": self._kind(owner.get("kind", ""), ""),
            "controller": bool(owner.get("controller")),
        }
        made["name"] = self._name_of(str(owner.get("kind") or ""), self._namespace, str(owner.get("name") or ""))
        made["uid"] = self._tokens.uid(str(owner.get("uid") or ""))
        return made

    def _reference(self, value: Any, parent: str) -> Any:
        """Redact a reference that has a kind: ``claimRef``, ``dataSource``."""
        kind = str(value.get("kind") or "PersistentVolumeClaim")
        space = str(value.get("namespace") or self._namespace)
        made = self._map({name: held for name, held in value.items() if name not in {"name", "uid"}}, parent)
        if value.get("uid"):
            made["uid"] = self._tokens.uid(str(value["uid"]))
        return made | {"name": self._name_of(kind, space, str(value.get("name") or ""))}

    def _consumers(self, value: Any, parent: str) -> Any:
        return [
            {
                "apiGroup": self._api_group(one.get("apiGroup") or "", ""),
                "resource": self._resource_kind(one.get("resource") or "", ""),
                "name": self._name_of("Pod", self._namespace, str(one.get("name") or "")),
                "uid": self._tokens.uid(str(one.get("uid") or "")),
            }
            for one in value
        ]

    def _annotations(self, given: Mapping[str, str]) -> dict[str, str]:
        made = {key: value for key, value in given.items() if key in _PLAIN_ANNOTATIONS and _is_plain(value)}
        for key, value in given.items():
            if key == "volume.kubernetes.io/selected-node":
                made[key] = self._tokens.name("Node", value)
            elif key.endswith(("/storage-provisioner", "/provisioned-by")):
                made[key] = self._text("driver", value)
            elif key == "volume.beta.kubernetes.io/storage-class":
                made[key] = self._tokens.name("StorageClass", value)
            elif key == "resource.kubernetes.io/pod-claim-name":
                made[key] = self._tokens.of("x", value)
            elif key.startswith(_KUEUE) and key.endswith("-topology") and key not in made:
                made[key] = self._tokens.label_key(value)  # of nodes, which are the levels of a topology
            elif key in {f"{_KUEUE}podset-group-name", f"{_KUEUE}role-hash"}:
                made[key] = self._tokens.of("x", value)
            elif key.startswith("moorage.dev/") and _OWN_ANNOTATION.fullmatch(value):
                made[key] = value
            elif key == "kubernetes.io/config.mirror":
                made[key] = "mirror"
            elif key == "scheduler.alpha.kubernetes.io/preferAvoidPods" and (avoided := self._avoided(value)):
                made[key] = avoided
        return made

    def _avoided(self, value: str) -> str:
        """Redact the list of owners whose pods a node prefers to avoid; "" for a text that is no such list."""
        try:
            listed = json.loads(value)["preferAvoidPods"]
            owners = [one["podSignature"]["podController"] for one in listed]
        except (ValueError, KeyError, TypeError):
            return ""
        return json.dumps({"preferAvoidPods": [{"podSignature": {"podController": self._owner(one)}} for one in owners]})

    # -- labels, taints, resources -----------------------------------------------------------------------------------------

    def _label_map(self, value: Any, parent: str) -> Any:
        """Redact a map of labels; ``selector`` may also be a selector with expressions."""
        if isinstance(value, dict) and (value.keys() & {"matchLabels", "matchExpressions", "nodeSelectorTerms"} or not value):
            return self._map(value, parent)
        return self._tokens.labels(value)

    def _expressions(self, value: Any, parent: str) -> Any:
        return [self._expression(one, fields=False) for one in value]

    def _match_fields(self, value: Any, parent: str) -> Any:
        return [self._expression(one, fields=True) for one in value]

    def _expression(self, one: Mapping[str, Any], *, fields: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"operator": self._word("operator", str(one["operator"]))} if "operator" in one else {}
        key, values = str(one.get("key") or ""), [str(value) for value in one.get("values") or ()]
        if "scopeName" in one:
            made["scopeName"] = self._word("scopeName", str(one["scopeName"]))
            made["values"] = [self._tokens.name("PriorityClass", value) for value in values]
        elif fields:
            made["key"] = key if key == "metadata.name" else self._tokens.of("x", key)
            made["values"] = [self._tokens.name("Node", value) for value in values]
        else:
            made |= {"key": self._tokens.label_key(key), "values": [self._tokens.label_value(key, value) for value in values]}
        return {name: held for name, held in made.items() if held not in ([], ())}

    def _taints(self, value: Any, parent: str) -> Any:
        made = []
        for one in value:
            rest = self._map({name: held for name, held in one.items() if name not in {"key", "value"}}, parent)
            key = str(one.get("key") or "")
            made.append(
                rest | {"key": self._tokens.label_key(key), "value": self._tokens.label_value(key, str(one.get("value") or ""))}
            )
        return made

    def _resources(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Redact a map of amounts; that of a device holds values and policies, by qualified names."""
        if key == "capacity" and given.keys() == {"requests"}:
            return {"requests": {self._tokens.parts(name): amount for name, amount in given["requests"].items()}}
        if any(isinstance(amount, dict) for amount in given.values()) or key == "consumedCapacity":
            return {self._tokens.parts(name): amount for name, amount in given.items()}
        limited = key in {"hard", "used"}
        return {
            self._tokens.limited(name) if limited else self._tokens.resource(name): amount for name, amount in given.items()
        }

    # -- devices -----------------------------------------------------------------------------------------------------------

    def _attributes(self, value: Any, parent: str) -> Any:
        return {self._tokens.parts(name): self._map(held, parent) for name, held in value.items()}

    def _counters(self, value: Any, parent: str) -> Any:
        return {self._tokens.of("x", name): held for name, held in value.items()}

    def _mappings(self, value: Any, parent: str) -> Any:
        return {
            self._tokens.resource(name): {
                key: self._tokens.parts(str(held)) if key == "capacityKey" else held for key, held in one.items()
            }
            for name, one in value.items()
        }

    def _cel(self, value: Any, parent: str) -> Any:
        """Replace the texts in an expression by tokens.

        Raises  InputError if it cannot be parsed, or looks into texts
        """
        try:
            tokens = list(scan(str(value)))
        except SourceError as error:
            raise InputError(f"{self._own_kind}: the expression {value!r} cannot be redacted: {error}") from None
        bound = {tokens[at + 4].text for at in range(len(tokens) - 4) if [one.text for one in tokens[at : at + 4]] == _BIND}
        made, end = "", 0
        for at, token in enumerate(tokens[:-1]):
            if token.kind == "word" and token.text in _LOOKS_INSIDE and tokens[at + 1].text == "(":
                raise InputError(
                    f"{self._own_kind}: the expression {value!r} cannot be redacted: {token.text}() looks into a text"
                )
            made += (" " if token.at > end else "") + self._literal(tokens, at, bound)
            end = token.at + len(token.text)
        return made

    def _literal(self, tokens: list[Token], at: int, bound: Collection[str]) -> str:
        """Return a token of an expression; texts and the names of attributes are replaced."""
        token = tokens[at]
        if token.kind == "word" and tokens[at + 1].text != "(" and _is_attribute(tokens, at, bound):
            return self._tokens.of("x", token.text)
        if token.kind == "bytes":
            held = unquoted(token)
            text = held.decode("latin-1") if isinstance(held, bytes) else held
            return f"b{json.dumps(self._tokens.of('x', text))}"
        if token.kind != "string":
            return token.text
        text = str(unquoted(token))
        if at > 1 and tokens[at - 1].text == "(" and tokens[at - 2].text in _READS_AMOUNT and _AMOUNT.fullmatch(text):
            return token.text
        return json.dumps(self._tokens.parts(text))

    # -- others ------------------------------------------------------------------------------------------------------------

    def _volumes(self, value: Any, parent: str) -> Any:
        return [self._named(one, self._tokens.of("c", str(one.get("name") or ""))) for one in value]

    def _drivers(self, value: Any, parent: str) -> Any:
        """Redact the drivers of a node, whose names are those of CSIDriver objects."""
        return [self._named(one, self._text("driver", str(one.get("name") or ""))) for one in value]

    def _named(self, one: Mapping[str, Any], token: str) -> dict[str, Any]:
        return {"name": token, **self._map({key: held for key, held in one.items() if key != "name"}, "")}

    def _conditions(self, value: Any, parent: str) -> Any:
        made = []
        for one in value:
            rest = {name: self._word(name, str(one[name])) for name in ("type", "status", "reason") if one.get(name)}
            if "observedGeneration" in one:
                rest["observedGeneration"] = one["observedGeneration"]
            if one.get("lastTransitionTime"):
                rest["lastTransitionTime"] = self._tokens.time(str(one["lastTransitionTime"]))
            made.append(rest)
        return made

    def _disrupted(self, value: Any, parent: str) -> Any:
        return {self._name_of("Pod", self._namespace, name): self._tokens.time(str(when)) for name, when in value.items()}

    def _status(self, value: Any, parent: str) -> Any:
        return self._map(value, parent) if isinstance(value, dict) else self._word("status", str(value))

    def _default(self, value: Any, parent: str) -> Any:
        return self._resources("default", value) if isinstance(value, dict) else value

    def _topology(self, value: Any, parent: str) -> Any:
        return [{**one, "key": self._tokens.label_key(str(one.get("key") or ""))} for one in value]


def _is_plain(value: str) -> bool:
    """Return True for the value of an annotation that is a number, a switch, or names of volume plugins."""
    return _PLAIN_ANNOTATION.fullmatch(value) is not None or KNOWN_DRIVERS.issuperset(value.split(","))


def _is_attribute(tokens: list[Token], at: int, bound: Collection[str]) -> bool:
    """Return True for the name of an attribute or a capacity: it follows a domain in brackets, or a variable bound to one."""
    before = at - 2 if at > 1 and tokens[at - 1].text == "?" else at - 1
    return before > 0 and tokens[before].text == "." and (tokens[before - 1].text == "]" or tokens[before - 1].text in bound)


_Special: TypeAlias = Callable[[Walker, Any, str], Any]
_SPECIAL: Final[Mapping[str, _Special]] = {
    field: getattr(Walker, f"_{name}") for name, fields in _FIELDS["special"].items() for field in fields
}
