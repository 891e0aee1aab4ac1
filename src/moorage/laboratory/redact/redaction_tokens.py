"""Tokens that replace names: equal names have equal tokens, and only the mapping restores them.

A token is a letter for the kind of thing and ten characters of a keyed hash, so guessing names without the key finds nothing.
Names that kubelets, controllers or scheduling compare in parts keep their structure: ``web-0`` of a stateful set becomes the
set's token with ``-0``.
"""

from __future__ import annotations

import hmac
import re
from base64 import b32encode
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from moorage.api.documents.served_kinds import KINDS as SERVED
from moorage.basis import table_of
from moorage.errors import InputError

#: What is done with each field, label and annotation.
RULES: Final[Mapping[str, Any]] = table_of("moorage.laboratory.redact", "rules.toml")
_LABELS: Final[Mapping[str, Any]] = RULES["labels"]
KNOWN_NAMESPACES: Final = frozenset(RULES["names"]["namespaces"])
_DEFAULT_SCHEDULER: Final = "default-scheduler"
#: Kind → the letter of its names.
_LETTERS: Final = {kind: letter for letter, kinds in RULES["names"]["letters"].items() for kind in kinds}
_WELL_KNOWN: Final = re.compile(r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io/.+")
_ROLE: Final = "node-role.kubernetes.io/"
_KNOWN_KEYS, _KNOWN_ROLES, _NUMBERS = (frozenset(_LABELS[what]) for what in ("known", "roles", "numbers"))
#: Label key → the words that are values of it.
_WORDS: Final[Mapping[str, Collection[str]]] = _LABELS["words"]
_PLAIN_RESOURCES: Final = frozenset(RULES["resources"]["plain"])
_ATTACHABLE: Final = frozenset(f"attachable-volumes-{one}" for one in ("aws-ebs", "azure-disk", "cinder", "gce-pd"))
#: What only a cluster's own names follow.
_OWN_LABELS: Final = ("node-restriction.kubernetes.io/",)
_PLAIN_VALUES: Final = frozenset({"", "true", "false"})
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBERED: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})")
_PLAIN_ADDRESSES: Final = frozenset(RULES["names"]["addresses"])
#: Joins the zones of a volume that is in several.
_BETWEEN_ZONES: Final = "__"
#: The largest shift of times, in seconds: ten years.
_MOST_SHIFT_S: Final = 315_360_000
#: Minimum length of a key in bytes, so that it cannot be guessed.
_LEAST_KEY: Final = 16


_GROUPS: Final = frozenset(one.group for one in SERVED)
_RESOURCES: Final = frozenset(one.resource for one in SERVED)


def _is_sized(value: str) -> bool:
    """Return True for huge pages of a size, and for volumes of a known plugin that can be attached."""
    if value.startswith("hugepages-"):
        return re.fullmatch(r"hugepages-[0-9]{1,6}[KMG]i", value) is not None
    return value in _ATTACHABLE


#: The groups of Kueue and Karpenter, whose labels, annotations and gates all clusters with them share.
_COMPANIONS: Final = ("kueue.x-k8s.io/", "karpenter.sh/")


def is_well_known(key: str) -> bool:
    """Return True for a label key or the like that all clusters share."""
    if key.startswith(_ROLE):
        return key.removeprefix(_ROLE) in _KNOWN_ROLES
    return (
        key in _KNOWN_KEYS
        or key.startswith(_COMPANIONS)
        or (_WELL_KNOWN.fullmatch(key) is not None and not key.startswith(_OWN_LABELS))
    )


class Tokens:
    """Tokens of one key. ``mapping`` collects what each stands for: token → kind letter and value.

    ``compared``: label keys whose values are compared as numbers and therefore stay.
    """

    def __init__(self, key: bytes, compared: Iterable[str] = ()) -> None:
        if len(key) < _LEAST_KEY:
            raise InputError(f"the key has {len(key)} bytes; use at least {_LEAST_KEY} random ones")
        self._key = key
        self._compared = frozenset(compared)
        self._known: dict[tuple[str, str], str] = {}
        self.mapping: dict[str, tuple[str, str]] = {}
        shift = int.from_bytes(self._hash("time", "")[:8], "big") % _MOST_SHIFT_S
        self._shift = timedelta(seconds=shift)

    def _hash(self, letter: str, value: str) -> bytes:
        return hmac.digest(self._key, f"{letter}\0{value}".encode(), sha256)

    def of(self, letter: str, value: str) -> str:
        """Return the token of a value; empty text stays."""
        if not value:
            return value
        token = self._known.get((letter, value))
        if token is None:
            token = letter + b32encode(self._hash(letter, value)).decode().lower()[:10]
            if self.mapping.setdefault(token, (letter, value)) != (letter, value):
                raise InputError("two names have the same token; use another key")
            self._known[letter, value] = token
        return token

    # -- names -------------------------------------------------------------------------------------------------------------

    def name(self, kind: str, value: str) -> str:
        """Return the token of the name of an object."""
        if kind == "Namespace" and value in KNOWN_NAMESPACES:
            return value
        if kind == "PriorityClass" and value.startswith("system-"):
            return value
        return self.of(_LETTERS.get(kind, "x"), value)

    def numbered(self, value: str) -> str:
        """Return the token of a stateful set's pod, which keeps its number."""
        found = _NUMBERED.fullmatch(value)
        return f"{self.of('w', found[1])}-{found[2]}" if found else self.of("p", value)

    def parts(self, value: str) -> str:
        """Return the tokens of names that are joined by slashes."""
        return "/".join(self.of("x", part) for part in value.split("/"))

    def uid(self, value: str) -> str:
        return self.of("u", value)

    def resource(self, value: str) -> str:
        """Return the name of a resource: the parts of an extended resource are replaced."""
        prefix, slash, name = value.rpartition("/")
        if not slash:
            return value if value in _PLAIN_RESOURCES or _is_sized(value) else self.of("r", value)
        if prefix.endswith("kubernetes.io"):
            return value
        return f"{self.resource_group(prefix)}/{self.of('r', name)}"

    def resource_group(self, value: str) -> str:
        """Return the prefix of extended resources."""
        return value if value.endswith("kubernetes.io") else self.of("r", value)

    def scheduler(self, value: str) -> str:
        """Return the name of a scheduler; that of the default one stays."""
        return value if value == _DEFAULT_SCHEDULER else self.of("h", value)

    def limited(self, value: str) -> str:
        """Return the redacted name of a quota's resource: a plain one, or one of a storage class or a device class."""
        for ending in (".storageclass.storage.k8s.io/", ".deviceclass.resource.k8s.io/"):
            name, found, what = value.partition(ending)
            if found:
                return f"{self.of('k', name)}{ending}{what}"
        prefix, dot, name = value.partition(".")
        if dot and prefix in {"requests", "limits"}:
            return f"{prefix}.{self.resource(name)}"
        if value.startswith("count/"):
            resource, dot, group = value.removeprefix("count/").partition(".")
            known = resource if resource in _RESOURCES else self.of("x", resource)
            return f"count/{known}{dot}{self.group(group)}"
        return self.resource(value)

    def group(self, value: str) -> str:
        """Return a group of the API; those of Kubernetes stay."""
        return value if value in _GROUPS or value.endswith((".k8s.io", ".kubernetes.io")) else self.of("x", value)

    # -- labels ------------------------------------------------------------------------------------------------------------

    def label_key(self, key: str) -> str:
        return key if is_well_known(key) else self.of("l", key)

    def label_value(self, key: str, value: str) -> str:
        if value in _PLAIN_VALUES or value in _WORDS.get(key, ()):
            return value
        if (key in _NUMBERS or key in self._compared) and _NUMBER.fullmatch(value):
            return value
        if key == _POD_NAME:
            return self.numbered(value)
        if _BETWEEN_ZONES in value and key.endswith("/zone"):
            return _BETWEEN_ZONES.join(self.of("m", zone) for zone in value.split(_BETWEEN_ZONES))
        letter = _LABELS["letters"].get(key, "m")
        return self.name("Namespace", value) if letter == "s" else self.of(letter, value)

    def labels(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {self.label_key(key): self.label_value(key, str(value)) for key, value in given.items()}

    # -- others ------------------------------------------------------------------------------------------------------------

    def image(self, value: str) -> str:
        """Return an image with tokens for its repository, tag and digest; the tag ``latest`` stays."""
        name, at, digest = value.partition("@")
        slash, colon = name.rfind("/"), name.rfind(":")
        repository, tag = (name[:colon], name[colon + 1 :]) if colon > slash else (name, "")
        made = self.of("i", repository)
        if tag:
            made += f":{tag if tag == 'latest' else self.of('i', tag)}"
        return made + (f"@sha256:{sha256(self._hash('i', digest)).hexdigest()}" if at else "")

    def address(self, value: str) -> str:
        """Return an address in 10.0.0.0/8 in the place of an address; the unspecified and the loopback address stay."""
        if value in _PLAIN_ADDRESSES:
            return value
        return ".".join(["10", *map(str, self._hash("a", value)[:3])])

    def time(self, value: str) -> str:
        """Return a time shifted by the offset of the key; "" for a text that is no time."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return ""
        shifted = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - self._shift
        text = shifted.astimezone(UTC).isoformat(timespec="microseconds" if "." in value else "seconds")
        return text.replace("+00:00", "Z")
