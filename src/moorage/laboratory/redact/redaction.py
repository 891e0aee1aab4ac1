"""Redact objects: replace the names in them by tokens, so that they can be shared and schedule as before.

Objects are decoded first, so only fields that scheduling reads get into the result. Equal names become equal tokens everywhere,
and names that are compared in parts keep their structure. The mapping restores the names; keep it with the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from moorage.api.custom_objects import CustomObject
from moorage.api.documents.object_fields import stable_uid
from moorage.api.kinds import KIND_OF_TYPE
from moorage.api.meta import Object
from moorage.api.workloads import StatefulSet
from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.components import COMPANION_KINDS
from moorage.basis.printable import one_line, some
from moorage.core.config.document_reader import read_text
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, read_given
from moorage.laboratory.redact.redaction_companions import CompanionWalker, redacted_component
from moorage.laboratory.redact.redaction_tokens import RULES, Tokens, is_well_known
from moorage.laboratory.redact.redaction_walk import KNOWN_DRIVERS, Walker
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import controller_of

# Redact a configuration of the scheduler, a KubeSchedulerConfiguration or a Policy, with the tokens of a cluster.
#
# Labels, resources, namespaces and schedulers get the same tokens as in the cluster's objects. Names of plugins, weights,
# strategies and times stay; addresses of extenders are replaced; settings of connections and servers are left out. Any other
# text becomes a token, as for objects.

_HINT: Final = "apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration"
_KEPT, _DROPPED, _LABELS, _OF_OBJECTS, _RULES = (
    frozenset(RULES["configuration"][what]) for what in ("kept", "dropped", "labels", "of_objects", "rules")
)


def read_configuration(text: bytes, where: str) -> dict[str, Any]:
    """Return a configuration as plain data.

    Raises  ConfigError, InputError
    """
    read = read_text(text, where, _HINT)
    return {"apiVersion": read.version, "kind": read.kind, **read.body}


def redact_configuration(document: Mapping[str, Any], tokens: Tokens, walker: Walker) -> dict[str, Any]:
    """Return a configuration with tokens in the place of names. ``walker`` redacts fields that objects have as well."""
    return _Configuration(tokens, walker).map(document)


class _Configuration:
    def __init__(self, tokens: Tokens, walker: Walker) -> None:
        self._tokens = tokens
        self._walker = walker
        self._special: Mapping[str, Callable[[Any], Any]] = {
            "plugins": lambda value: value,
            "pluginConfig": lambda value: [{**one, "args": self._field("args", one.get("args"))} for one in value],
            "extenders": lambda value: [self._extender(one) for one in value],
            "resources": self._resources,
            "managedResources": self._resources,
            "ignoredResources": lambda value: [tokens.resource(str(one)) for one in value],
            "ignoredResourceGroups": lambda value: [tokens.resource_group(str(one)) for one in value],
            "schedulerName": lambda value: tokens.scheduler(str(value)),
            **dict.fromkeys(_RULES, lambda value: [self._rule(one) for one in value]),
        }

    def map(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._field(key, value) for key, value in given.items() if key not in _DROPPED}

    def _field(self, key: str, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float) or key in _KEPT:
            return value
        if key in self._special and isinstance(value, list | dict | str):
            return self._special[key](value)
        if key in _OF_OBJECTS:
            return self._walker.object(value)
        if isinstance(value, dict):
            return self.map(value)
        if isinstance(value, list):
            return [self._field(key, one) for one in value]
        return self._tokens.label_key(str(value)) if key in _LABELS else self._tokens.parts(str(value))

    def _resources(self, value: Any) -> Any:
        return [{**one, "name": self._tokens.resource(str(one.get("name") or ""))} for one in value]

    def _rule(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """Redact a predicate or a priority; one with an argument has a name that its author chose."""
        if not one.get("argument"):
            return dict(one)
        rest = self.map({key: value for key, value in one.items() if key != "name"})
        return {"name": self._tokens.of("x", str(one.get("name") or "")), **rest}

    def _extender(self, one: Mapping[str, Any]) -> dict[str, Any]:
        made = self.map({key: value for key, value in one.items() if key != "urlPrefix"})
        if one.get("urlPrefix"):
            scheme, found, rest = str(one["urlPrefix"]).partition("://")
            host = f"{self._tokens.of('x', rest if found else scheme)}.invalid"
            made["urlPrefix"] = f"{scheme}://{host}" if found else host
        return made


_DRIVER_WORDS: Final = re.compile(r"[a-z0-9]{4,}")
_VOCABULARIES: Final = frozenset(RULES["search"]["vocabularies"])
#: Words that reveal nothing.
_COMMON: Final = frozenset(RULES["search"]["common_words"]).union(*map(_DRIVER_WORDS.findall, KNOWN_DRIVERS))
_WORD: Final = re.compile(r"[A-Za-z0-9]{4,}")


@dataclass(frozen=True, slots=True)
class Redacted:
    """Objects without names, as plain data. ``mapping``: token → the name that it replaces; keep it secret.

    ``configurations`` are those of the scheduler that were redacted with the same tokens.
    """

    objects: list[dict[str, Any]]
    mapping: Mapping[str, str] = field(repr=False)
    configurations: list[dict[str, Any]] = field(default_factory=list)


def redact(objects: Iterable[ObjectLike], key: bytes, configurations: Iterable[str | bytes] = ()) -> Redacted:
    """Return objects with tokens in the place of names: structs, dicts, YAML text or paths, as ``moorage.Cluster`` takes them.

    ``configurations``: the texts of a KubeSchedulerConfiguration or a Policy, which get the same tokens.
    Raises  ConfigError, InputError for what cannot be read, for a key that is too short, and for what cannot be redacted
    """
    texts = [one.encode() if isinstance(one, str) else one for one in configurations]
    read = [read_configuration(text, "the configuration") for text in texts]
    return redact_cluster(read_given(objects), key, read)


def redact_cluster(
    cluster: ClusterInput, key: bytes, configurations: Sequence[Mapping[str, Any]] = (), compared: Iterable[str] = ()
) -> Redacted:
    """Return the objects of an input, and configurations as plain data, with tokens in the place of names.

    ``compared``: label keys whose values stay, because objects outside the input compare them as numbers
    Raises  InputError
    """
    beside = [*cluster.custom, *cluster.job_objects]
    if kinds := sorted({one.resource for one in beside if one.resource not in COMPANION_KINDS}):
        raise InputError(f"objects of custom kinds cannot be redacted: {some(kinds)}")
    objects = list(_objects(cluster))
    documents = [(obj, _document(obj)) for obj in objects]
    customs = [dict(_CLEANER.custom(one.document["apiVersion"], one.document["kind"], one.document)) for one in beside]
    every = [*(document for _, document in documents), *customs, *configurations]
    tokens = Tokens(key, set(compared).union(*map(compared_keys, every)))
    names = _Names(tokens, cluster)
    made = []
    for obj, document in documents:
        kind = KIND_OF_TYPE[type(obj)]
        walker = Walker(tokens, names.of, kind.name, obj.metadata.namespace)
        made.append({"apiVersion": kind.api_version, "kind": kind.name, **walker.object(document)})
    for one in customs:
        walker = CompanionWalker(tokens, names.of, one["kind"], str((one.get("metadata") or {}).get("namespace") or ""))
        made.append({"apiVersion": one["apiVersion"], "kind": one["kind"], **walker.object(one)})
    walker = Walker(tokens, names.of, "Pod", "default")
    configured = [redact_configuration(one, tokens, walker) for one in configurations]
    _refuse_leaks([*made, *map(_without_plugins, configured)], tokens)
    made += map(redacted_component, cluster.components)
    return Redacted(made, {token: value for token, (_, value) in tokens.mapping.items()}, configured)


def _objects(cluster: ClusterInput) -> Iterator[Object]:
    for name in ClusterInput.__dataclass_fields__:
        if name not in {"components", "custom", "job_objects", "report", "written"}:
            yield from getattr(cluster, name)


_CLEANER: Final = ObjectCleaner()


def _document(obj: Object) -> dict[str, Any]:
    """Return an object as plain data, without a UID that is derived from its name, because reading derives it again."""
    if isinstance(obj, CustomObject):
        raise InputError(f"{obj.resource} cannot be redacted")
    document: dict[str, Any] = msgspec.to_builtins(_CLEANER.cleaned(obj))
    metadata = obj.metadata
    if metadata.uid == stable_uid(KIND_OF_TYPE[type(obj)].name, metadata.namespace, metadata.name):
        document["metadata"] = {name: value for name, value in document["metadata"].items() if name != "uid"}
    return document


def compared_keys(value: Any) -> set[str]:
    """Return the label keys whose values are compared as numbers somewhere in an object."""
    if isinstance(value, list | tuple):
        return set().union(*map(compared_keys, value))
    if not isinstance(value, dict):
        return set()
    own = {str(value.get("key"))} if value.get("operator") in {"Gt", "Lt"} else set()
    return own.union(*map(compared_keys, value.values()))


class _Names:
    """Tokens of the names of objects, including names that are composed of others.

    The name of a replica set begins with that of its deployment, a stateful set's pods and claims are numbered, and the claim
    of an ephemeral volume is named after its pod.
    """

    def __init__(self, tokens: Tokens, cluster: ClusterInput) -> None:
        self._tokens = tokens
        self._composed: dict[tuple[str, str, str], str] = {}
        self._sets = {(one.metadata.namespace, one.metadata.name): one for one in cluster.stateful_sets}
        self._templates = [*self._claim_templates()]
        for one in cluster.replica_sets:
            self._hashed(one.metadata.namespace, one.metadata.name, one.metadata.labels.get(POD_TEMPLATE_HASH, ""))
        for pod in cluster.pods:
            owner = controller_of(pod.metadata)
            if owner is not None and owner.kind == "ReplicaSet":
                self._hashed(pod.namespace, owner.name, pod.labels.get(POD_TEMPLATE_HASH, ""))
            base = pod.name.rpartition("-")[0]
            if (owner is not None and owner.kind == "StatefulSet") or (pod.namespace, base) in self._sets:
                self._composed["Pod", pod.namespace, pod.name] = tokens.numbered(pod.name)
        for pod in cluster.pods:
            for volume in pod.spec.volumes:
                if volume.ephemeral is not None:
                    name = f"{self.of('Pod', pod.namespace, pod.name)}-{tokens.of('c', volume.name)}"
                    self._composed["PersistentVolumeClaim", pod.namespace, f"{pod.name}-{volume.name}"] = name

    def _claim_templates(self) -> Iterator[tuple[str, str, StatefulSet]]:
        for (namespace, _), one in self._sets.items():
            for template in one.spec.volume_claim_templates:
                yield namespace, str((template.get("metadata") or {}).get("name") or ""), one

    def _hashed(self, namespace: str, name: str, mark: str) -> None:
        if mark and name.endswith(f"-{mark}"):
            base = self._tokens.name("Deployment", name.removesuffix(f"-{mark}"))
            self._composed["ReplicaSet", namespace, name] = f"{base}-{self._tokens.label_value(POD_TEMPLATE_HASH, mark)}"

    def of(self, kind: str, namespace: str, name: str) -> str:
        """Return the token of an object's name."""
        known = self._composed.get((kind, namespace, name))
        if known is not None:
            return known
        if kind == "PersistentVolumeClaim":
            for space, template, owner in self._templates:
                base = f"{template}-{owner.metadata.name}-"
                number = name.removeprefix(base)
                if space == namespace and name.startswith(base) and number.isdecimal():
                    return f"{self._tokens.of('c', template)}-{self._tokens.name('StatefulSet', owner.metadata.name)}-{number}"
            return self._tokens.name("PersistentVolumeClaim", name)
        return self._tokens.name(kind, name)


# -- what must not be in the result --------------------------------------------------------------------------------------


def _refuse_leaks(documents: Iterable[Mapping[str, Any]], tokens: Tokens) -> None:
    """Check that no text outside fixed vocabularies contains words of replaced names.

    Raises  InputError that names the first of them
    """
    words = {word for _, value in tokens.mapping.values() for word in _WORD.findall(value)}
    secret = {word for word in words if not word.isdecimal() and word.lower() not in _COMMON}
    leaks: dict[str, str] = {}
    for document in documents:
        for text, where in _texts(document, ""):
            found = next((word for word in _WORD.findall(text) if word in secret and word not in tokens.mapping), None)
            if found is not None:
                leaks.setdefault(found, f"{document['kind']}: {where}")
    if leaks:
        shown = some([f"{word} ({where})" for word, where in leaks.items()])
        raise InputError(one_line(f"words of names would stay in the result: {shown}"))


def _without_plugins(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the names of plugins and of a policy's own rules, which stay."""
    profiles = [
        {key: value for key, value in profile.items() if key not in {"plugins", "pluginConfig"}}
        | {"args": [one.get("args") for one in profile.get("pluginConfig") or ()]}
        for profile in configuration.get("profiles") or ()
    ]
    return {**configuration, "profiles": profiles}


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a document that could hold a name: no field names, fixed vocabularies and well-known keys."""
    if isinstance(value, dict):
        for name, held in value.items():
            path = f"{where}.{name}" if where else name
            if name not in _VOCABULARIES or isinstance(held, dict):
                yield from _texts(held, path)
            if "/" in name and not is_well_known(name):
                yield name.partition("/")[0], path
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, where)
    elif isinstance(value, str) and not is_well_known(value):
        yield value, where
