"""Redact objects of Kueue, Karpenter and job controllers, and the settings of such components.

Fields are redacted as elsewhere, with the words, amounts and names that these kinds have: ``[companions]`` in ``rules.toml``. A
field that is not listed becomes a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.basis.inputs.components import COMPONENT, Component
from moorage.laboratory.redact.redaction_tokens import RULES
from moorage.laboratory.redact.redaction_walk import Walker

_RULES: Final[Mapping[str, Any]] = RULES["companions"]
_KEPT, _RESOURCES, _LABEL_KEYS, _BY_RESOURCE = (
    frozenset(_RULES[what]) for what in ("kept", "resources", "label_keys", "by_resource")
)
_WORDS: Final = {field: frozenset(words) for field, words in _RULES["words"].items()}
#: The fields of Kueue's Configuration that change decisions.
_CONFIGURED: Final = frozenset(_RULES["configuration"])
#: The flags of components whose values are no names.
_FLAGS: Final = frozenset(_RULES["flags"])
#: A LocalQueue of this name takes the jobs that name none.
_DEFAULT: Final = "default"
_WORD: Final = re.compile(r"[A-Z][A-Za-z]+")


class CompanionWalker(Walker):
    """Redacts the fields of one object of these kinds."""

    def object(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object without names."""
        if document.get("kind") == "Configuration":
            kept = {name: value for name, value in document.items() if name in _CONFIGURED}
            return {"metadata": {"name": "configuration"}, **self._map(kept, "")}
        made = self._map({name: value for name, value in document.items() if name not in {"apiVersion", "kind"}}, "")
        if document.get("kind") == "LocalQueue" and document["metadata"].get("name") == _DEFAULT:
            made["metadata"]["name"] = _DEFAULT
        return made

    def _field(self, key: str, value: Any, parent: str) -> Any:
        if key in _OWN:
            return _OWN[key](self, value, parent)
        if key in _KEPT and not isinstance(value, dict | list):
            return value
        if key in _WORDS:
            return _words(self, key, value)
        if key in _RESOURCES and isinstance(value, list):
            return [self._tokens.resource(str(one)) for one in value]
        if key in _LABEL_KEYS and isinstance(value, str):
            return self._tokens.label_key(value)
        if key in _BY_RESOURCE and isinstance(value, dict):
            return {self._tokens.resource(name): self._field("flavor", one, key) for name, one in value.items()}
        if key == "resources" and isinstance(value, list):  # of a flavor: each with its quota
            return [{**self._map(one, key), "name": self._tokens.resource(str(one.get("name")))} for one in value]
        return super()._field(key, value, parent)

    def _conditions_of(self, value: Any, parent: str) -> Any:
        """Return conditions without their messages; types and reasons are words of the API."""
        kept = []
        for one in value or ():
            words = {name: one[name] for name in ("type", "status", "reason") if _WORD.fullmatch(str(one.get(name) or ""))}
            if "type" in words:
                kept.append(
                    {**words, "lastTransitionTime": self._tokens.time(str(one.get("lastTransitionTime") or "")) or None}
                )
        return kept

    def _usage(self, value: Any, parent: str) -> Any:
        return self._resources("requests", value)

    def _queue(self, value: Any, parent: str) -> Any:
        return value if value == _DEFAULT else self._tokens.parts(str(value))

    def _requirements(self, value: Any, parent: str) -> Any:
        """Return requirements of a NodePool, which are written as expressions of selectors."""
        if not isinstance(value, list):
            return super()._field("requirements", value, parent)
        own = ({name: held for name, held in one.items() if name != "minValues"} for one in value)
        made = self._expressions(list(own), parent)
        return [
            {**one, **({"minValues": given["minValues"]} if "minValues" in given else {})}
            for one, given in zip(made, value, strict=True)
        ]

    def _transformations(self, value: Any, parent: str) -> Any:
        return [
            {
                **{name: held for name, held in one.items() if name == "strategy"},
                "input": self._tokens.resource(str(one.get("input"))),
                **({"multiplyBy": self._tokens.resource(str(one["multiplyBy"]))} if one.get("multiplyBy") else {}),
                "outputs": {self._tokens.resource(name): amount for name, amount in (one.get("outputs") or {}).items()},
            }
            for one in value or ()
        ]  # fmt: skip


def _words(walker: CompanionWalker, key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_words(walker, key, one) for one in value]
    return value if value in _WORDS[key] else walker._tokens.parts(str(value))


_OWN: Final[Mapping[str, Callable[[CompanionWalker, Any, str], Any]]] = {
    "conditions": CompanionWalker._conditions_of,
    "queueName": CompanionWalker._queue,
    "resourceUsage": CompanionWalker._usage,
    "requirements": CompanionWalker._requirements,
    "transformations": CompanionWalker._transformations,
    "nodeLabels": lambda walker, value, parent: walker._label_map(value, parent),
    "nodeTaints": lambda walker, value, parent: walker._taints(value, parent),
    "startupTaints": lambda walker, value, parent: walker._taints(value, parent),
    "featureGates": lambda walker, value, parent: value,
    "frameworks": lambda walker, value, parent: value,
}


def redacted_component(one: Component) -> dict[str, Any]:
    """Return a component with its release, and the settings that hold no names."""
    tag = one.image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    image = f"{one.name}:{tag}" if one.version else one.name
    arguments = [word for word in one.arguments if word.lstrip("-").partition("=")[0] in _FLAGS and "=" in word]
    environment = {name: value for name, value in one.environment.items() if name.lower().replace("_", "-") in _FLAGS}
    head = {"apiVersion": COMPONENT[0], "kind": COMPONENT[1], "metadata": {"name": one.name}}
    return {**head, "name": one.name, "image": image, "arguments": arguments, "environment": environment}
