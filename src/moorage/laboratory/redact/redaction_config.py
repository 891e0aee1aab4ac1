"""Redact a configuration of the scheduler, a KubeSchedulerConfiguration or a Policy, with the tokens of a cluster.

Labels, resources, namespaces and schedulers get the same tokens as in the cluster's objects. Names of plugins, weights,
strategies and times stay; addresses of extenders are replaced; settings of connections and servers are left out. Any other text
becomes a token, as for objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.core.config.document_reader import read_text
from moorage.laboratory.redact.redaction_tokens import Tokens
from moorage.laboratory.redact.redaction_walk import Walker

__all__ = ["read_configuration", "redact_configuration"]

_HINT: Final = "apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration"
#: Fields about running the scheduler, such as connections and logging, on which no decision depends.
_DROPPED: Final = frozenset({
    "clientConnection", "enableContentionProfiling", "enableProfiling", "healthzBindAddress", "leaderElection",
    "metricsBindAddress", "policy", "tlsConfig",
})  # fmt: skip
#: Fields whose texts are from a fixed vocabulary, or lengths of time.
_KEPT: Final = frozenset({
    "apiVersion", "bindingTimeout", "defaultingType", "filterTimeout", "gpuSelMethod", "httpTimeout", "kind", "provider",
    "type", "unschedulablePodFlushInterval", "whenUnsatisfiable",
})  # fmt: skip
_LABELS: Final = frozenset({
    "absentLabels", "absentLabelsPreference", "affinityLabels", "antiAffinityLabelsPreference", "label", "labels",
    "presentLabels", "presentLabelsPreference", "topologyKey",
})  # fmt: skip
#: Fields with the same content as fields of pods and nodes.
_OF_OBJECTS: Final = frozenset({"addedAffinity", "labelSelector"})
_RULES: Final = frozenset({"predicates", "priorities"})


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
            **dict.fromkeys(_RULES, self._rules),
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

    def _rules(self, value: Any) -> Any:
        """Redact predicates or priorities; one with an argument has a name that its author chose."""
        return [self._rule(one) for one in value]

    def _rule(self, one: Mapping[str, Any]) -> dict[str, Any]:
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
