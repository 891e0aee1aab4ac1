"""Pod security admission: labels of a namespace select the level that its pods must have, and what happens to others.

``enforce`` refuses pods, ``warn`` warns about pods and workloads, ``audit`` annotates their requests in the audit log. A level
that becomes stricter warns about the pods that the namespace already has.

Source  pod-security-admission: admission/admission.go, api/helpers.go; kubernetes, plugin/pkg/admission/security/podsecurity
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import forbidden, invalid, quoted
from moorage.errors import Fault
from moorage.rules.admission.pod_security_standards import violations
from moorage.rules.admission.validation import pod_template

LABEL: Final = "pod-security.kubernetes.io/"
LEVELS: Final = ("privileged", "baseline", "restricted")
MODES: Final = ("enforce", "audit", "warn")
_ENFORCED: Final = f"{LABEL}enforce-policy"
#: The version of a level that follows the release of the cluster.
LATEST: Final = -1
#: The most pods of a namespace that are checked when its level changes.
_MOST_PODS: Final = 3000
_VERSION: Final = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
#: Subresources of pods whose writes are not checked.
_UNCHECKED: Final = frozenset(["attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "status"])
_WORKLOADS: Final = frozenset(
    ["CronJob", "DaemonSet", "Deployment", "Job", "PodTemplate", "ReplicaSet", "ReplicationController", "StatefulSet"]
)


class SecurityLevel(NamedTuple):
    """A level with its version: the minor one, or ``LATEST``."""

    level: str = "privileged"
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"


class SecurityPolicy(NamedTuple):
    """The levels of a namespace."""

    enforce: SecurityLevel = SecurityLevel()
    audit: SecurityLevel = SecurityLevel()
    warn: SecurityLevel = SecurityLevel()

    @property
    def is_privileged(self) -> bool:
        return all(one.level == "privileged" for one in self)


@dataclass(frozen=True)
class PodSecurity:
    """Pod security admission of a cluster: the levels of namespaces without labels, and who and what is exempted.

    ``newest`` is the minor version of the cluster's release.
    """

    newest: int
    defaults: SecurityPolicy = field(default_factory=SecurityPolicy)
    users: frozenset[str] = field(default_factory=frozenset)
    namespaces: frozenset[str] = field(default_factory=frozenset)
    runtime_classes: frozenset[str] = field(default_factory=frozenset)

    # -- namespaces ----------------------------------------------------------------------------------------------------

    def admit_namespace(self, old: Document | None, new: Document, pods: Iterable[Document]) -> list[str]:
        """Check the labels of a namespace that is written, and return warnings; ``pods`` are those that it has.

        Raises  ApiError 422 for invalid labels, unless they were there before
        """
        name, labels = str(new["metadata"].get("name") or ""), _labels(new)
        wanted, faults = self.policy_of(labels)
        before, held_faults = self.policy_of(_labels(old)) if old is not None else (wanted, [])
        if faults and faults != held_faults:
            raise invalid("Namespace", "", name, faults)
        if old is None:
            return self._exempt_warnings(name, wanted, labels)
        is_relaxed = wanted.enforce.version == before.enforce.version and LEVELS.index(wanted.enforce.level) <= LEVELS.index(
            before.enforce.level
        )
        if wanted.enforce.level == "privileged" or is_relaxed:
            return []
        if name in self.namespaces:
            return self._exempt_warnings(name, wanted, labels)
        return self._warnings_about(name, wanted.enforce, pods)

    def _exempt_warnings(self, name: str, policy: SecurityPolicy, labels: Mapping[str, str]) -> list[str]:
        if name not in self.namespaces or policy.is_privileged or policy == self.defaults:
            return []
        set_modes = [
            f"{mode}={level}" for mode, level in zip(MODES, policy, strict=True)
            if level.level != "privileged" and {f"{LABEL}{mode}", f"{LABEL}{mode}-version"} & labels.keys()
        ]  # fmt: skip
        return [
            f"namespace {quoted(name)} is exempt from Pod Security, and the policy ({', '.join(set_modes)}) will be ignored"
        ]

    def _warnings_about(self, namespace: str, level: SecurityLevel, pods: Iterable[Document]) -> list[str]:
        """Return warnings about the pods of a namespace that violate its new level, those of one controller last."""
        ordered = [*self._by_controller(pods)]
        names: dict[str, list[str]] = {}
        for pod in ordered[:_MOST_PODS]:
            if found := violations(level.level, self._version(level), pod["metadata"], pod.get("spec") or {}):
                names.setdefault(", ".join(one.reason for one in found), []).append(pod["metadata"]["name"])
        warnings = []
        if len(ordered) > _MOST_PODS:
            first = f"first {_MOST_PODS} of {len(ordered)} existing pods"
            warnings.append(f"new PodSecurity enforce level only checked against the {first}")
        if names:
            shown = quoted(namespace), quoted(str(level))
            warnings.append(f"existing pods in namespace {shown[0]} violate the new PodSecurity enforce level {shown[1]}")
        return warnings + sorted(f"{_some(sorted(them))}: {reasons}" for reasons, them in names.items())

    def _by_controller(self, pods: Iterable[Document]) -> Iterator[Document]:
        """Yield the pods that are not exempt: the first of each controller, and those without, before the others."""
        seen: set[str] = set()
        later: list[Document] = []
        for pod in pods:
            if (pod.get("spec") or {}).get("runtimeClassName") in self.runtime_classes:
                continue
            owners = pod["metadata"].get("ownerReferences") or ()
            uid = next((str(one.get("uid")) for one in owners if one.get("controller")), "")
            if uid and uid in seen:
                later.append(pod)
                continue
            seen.add(uid)
            yield pod
        yield from later

    # -- pods and workloads --------------------------------------------------------------------------------------------

    def concerns(self, kind: ServedKind, subresource: str) -> bool:
        """Return whether writes of a resource are checked."""
        if kind.native == "Pod":
            return subresource not in _UNCHECKED
        return not subresource and (kind.native == "Namespace" or kind.native in _WORKLOADS)

    def admit(
        self, kind: ServedKind, labels: Mapping[str, str], user: str, old: Document | None, new: Document,
        annotations: MutableMapping[str, str] | None = None,
    ) -> list[str]:  # fmt: skip
        """Check a pod or a workload in a namespace with these labels, and return warnings. ``user`` makes the request.

        ``annotations`` gets those of the audit log; without it, the level of ``audit`` is not evaluated.

        Raises  ApiError 403 for a pod that violates the level that the namespace enforces
        """
        noted: MutableMapping[str, str] = {} if annotations is None else annotations
        metadata = new["metadata"]
        if metadata.get("namespace") in self.namespaces or user in self.users:
            noted[f"{LABEL}exempt"] = "namespace" if metadata.get("namespace") in self.namespaces else "user"
            return []
        policy, faults = self.policy_of(labels)
        is_pod = kind.native == "Pod"
        if not faults and is_pod and policy.is_privileged:
            noted[_ENFORCED] = str(SecurityLevel())
            return []
        audits = annotations is not None and policy.audit.level != "privileged"
        if not faults and not is_pod and policy.warn.level == "privileged" and not audits:
            return []
        template = (metadata, new.get("spec") or {}) if is_pod else pod_template(kind, new)
        if template is None or (is_pod and old is not None and not _differs(old.get("spec") or {}, template[1])):
            return []
        if template[1].get("runtimeClassName") in self.runtime_classes:
            noted[f"{LABEL}exempt"] = "runtimeClass"
            return []
        if faults:
            shown = str(faults[0]) if len(faults) == 1 else f"[{', '.join(map(str, faults))}]"
            noted[f"{LABEL}error"] = f"Failed to parse policy: {shown}"
        if is_pod:
            noted[_ENFORCED] = str(policy.enforce)
        if audits and (why := self._why(policy.audit, *template)):
            noted[f"{LABEL}audit-violations"] = f"would violate PodSecurity {why}"
        if is_pod and (why := self._why(policy.enforce, *template)):
            raise forbidden("pods", "", metadata.get("name") or "", f"violates PodSecurity {why}")
        why = self._why(policy.warn, *template)
        return [f"would violate PodSecurity {why}"] if why else []

    def _why(self, level: SecurityLevel, metadata: Document, spec: Document) -> str:
        """Return which level a pod violates, and why; "" if it does not."""
        found = violations(level.level, self._version(level), metadata, spec)
        return f"{quoted(str(level))}: {', '.join(map(str, found))}" if found else ""

    def _version(self, level: SecurityLevel) -> int:
        return self.newest if level.version == LATEST else min(level.version, self.newest)

    # -- labels --------------------------------------------------------------------------------------------------------

    def policy_of(self, labels: Mapping[str, str]) -> tuple[SecurityPolicy, list[Fault]]:
        """Return the levels that the labels of a namespace select, and the faults of the labels.

        An invalid level enforces ``restricted``, and neither warns nor audits. Who enforces a level also warns about it.
        """
        levels: dict[str, SecurityLevel] = dict(zip(MODES, self.defaults, strict=True))
        faults: list[Fault] = []
        valid: set[str] = set()
        for mode in MODES:
            name, key = f"{LABEL}{mode}", f"{LABEL}{mode}-version"
            if name in labels:
                is_level = labels[name] in LEVELS
                level = labels[name] if is_level else "restricted" if mode == "enforce" else "privileged"
                levels[mode] = levels[mode]._replace(level=level)
                valid |= {mode} if is_level else set()
                if not is_level:
                    faults.append(_fault(name, f"must be one of {', '.join(LEVELS)}", labels[name]))
            if key in labels:
                version = parse_version(labels[key])
                levels[mode] = levels[mode]._replace(version=LATEST if version is None else version)
                if version is None:
                    faults.append(_fault(key, 'must be "latest" or "v1.x"', labels[key]))
        stricter = LEVELS.index(levels["enforce"].level) > LEVELS.index(levels["warn"].level)
        if f"{LABEL}warn" not in labels and "enforce" in valid and stricter:
            version = levels["warn" if f"{LABEL}warn-version" in labels else "enforce"].version
            levels["warn"] = SecurityLevel(levels["enforce"].level, version)
        return SecurityPolicy(**levels), faults


def parse_version(text: str) -> int | None:
    """Return the minor version of a level, ``LATEST`` for "latest"; None for another text."""
    if text == "latest":
        return LATEST
    found = _VERSION.fullmatch(text)
    return None if found is None or len(found[1]) > 18 else int(found[1])


def _fault(label: str, why: str, value: str) -> Fault:
    return Fault("Invalid value", f"metadata.labels[{label}]", why, value)


def _labels(namespace: Document) -> Mapping[str, str]:
    return dict(namespace["metadata"].get("labels") or {})


def _some(names: list[str]) -> str:
    more = len(names) - 1
    return names[0] if not more else f"{names[0]} (and {more} other {'pod' if more == 1 else 'pods'})"


def _differs(old: Document, new: Document) -> bool:
    """Return whether a pod has other images or containers, which is what an update can change of what is checked."""
    for part in ("containers", "initContainers"):
        before, after = ([one.get("image") for one in spec.get(part) or ()] for spec in (old, new))
        if before != after:
            return True
    held = {one.get("name"): one.get("image") for one in old.get("ephemeralContainers") or ()}
    return any(
        one.get("name") not in held or held[one.get("name")] != one.get("image") for one in new.get("ephemeralContainers") or ()
    )
