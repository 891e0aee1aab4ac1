"""Load any scheduler configuration document and resolve it: its profiles, and the release whose plugins run.

The release is never guessed from the profiles: it is the release that the caller emulates, or else that of the document's
apiVersion. A document that the emulated release cannot read is rejected with that release's message.

Source  kube-scheduler 1.21, scheduler.go, New; 1.36, cmd/kube-scheduler/app/options/configfile.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from msgspec import structs

from moorage.config.api_versions import API_VERSIONS, V1, V1BETA1, ApiVersion, default_version, version_of
from moorage.config.configuration import Configuration, KubeSchedulerProfile, Plugins, PluginSet
from moorage.config.defaults import with_defaults
from moorage.config.document_reader import KIND, SchedulerText, not_registered, read_text, refuse
from moorage.config.legacy_serving import Addresses, plain_addresses
from moorage.config.legacy_sets import settled
from moorage.config.loader import default_configuration, joined, load_version
from moorage.config.policy import read_policy
from moorage.config.policy_plugins import in_policy, policy_configs, policy_faults, policy_plugins
from moorage.config.profiles import ResolvedProfile, add_own_points, catalogue, resolve, resolved
from moorage.config.release_1_21 import DEFAULT_PROVIDER, POINTS, PROVIDERS, provider
from moorage.errors import Fault, InputError
from moorage.framework.features import FeatureGates
from moorage.framework.registry import Registry
from moorage.releases import RELEASES, TODAY

__all__ = [
    "POLICY",
    "Loaded",
    "ReleaseRules",
    "from_policy",
    "from_provider",
    "load_any",
    "load_as",
    "load_default",
]

POLICY: Final = "Policy"
_ADDRESSES: Final = dict.fromkeys(
    ("healthzBindAddress", "metricsBindAddress"), "the flags --bind-address and --secure-port say where both are served"
)
_UNNAMED: Final = KubeSchedulerProfile()
_NOTHING_SAID: Final = Configuration()
_ATTRIBUTES: Final = dict(zip(Plugins.__struct_encode_fields__, Plugins.__struct_fields__, strict=True))


class ReleaseRules(Protocol):
    """The plugins and feature gates of each release."""

    def registry(self, release: str) -> Registry: ...
    def gates(self, release: str) -> FeatureGates: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded and resolved document.

    ``source``    where it comes from: ``KubeSchedulerConfiguration v1beta1``, ``Policy v1``, ``provider DefaultProvider``,
                  ``defaults``
    ``version``   the version in which ``config`` commands write it
    ``release``   the release whose plugins and gates apply
    ``unused``    fields that have no effect here → their replacement
    ``addresses`` where health and metrics are served over plain HTTP; None for releases that do not serve it
    """

    source: str
    version: ApiVersion
    release: str
    configuration: Configuration
    profiles: tuple[ResolvedProfile, ...]
    registry: Registry
    gates: FeatureGates
    unused: Mapping[str, str] = field(default_factory=dict)
    addresses: Addresses | None = None

    @property
    def heading(self) -> str:
        """Return a line that names the release and the source of the configuration."""
        how = "" if self.gates.emulated.compared else ", by its source, not compared"
        return f"rules of Kubernetes {self.release}{how} ({self.source})"


def load_any(text: bytes, where: str, rules: ReleaseRules, emulate: str | None = None) -> Loaded:
    """Read a KubeSchedulerConfiguration of any version, or a Policy, and resolve its profiles.

    Raises  ConfigError with every fault found; InputError for text that is neither YAML nor JSON
    """
    found = read_text(text, where, _hint(emulate))
    version = API_VERSIONS.get(found.version) if found.kind == KIND else None
    if (found.kind, found.version) == (POLICY, "v1") and (emulate is None or _reads_policy(emulate)):
        return from_policy(found, rules, emulate)
    if version is None or (emulate is not None and emulate not in version.emulated):
        known = {KIND, POLICY} if emulate is None or _reads_policy(emulate) else {KIND}
        refuse(where, [not_registered(found.kind, found.version, known, _hint(emulate))])
        raise AssertionError("a document of no known version is refused")
    return load_as(version, found, rules, emulate)


def load_as(version: ApiVersion, text: SchedulerText, rules: ReleaseRules, emulate: str | None = None) -> Loaded:
    """Read a KubeSchedulerConfiguration of this version, and resolve its profiles.

    Raises  ConfigError with every fault found
    """
    release = emulate or version.rules
    registry, gates = rules.registry(release), rules.gates(release)
    version = version_of(version, gates.emulated)
    configuration = load_version(text, version, registry, gates)
    return Loaded(
        _with_emulate(f"{KIND} {version.short}", emulate),
        version,
        release,
        configuration,
        resolve(configuration, registry, gates, version),
        registry,
        gates,
        dict(_without_effect(text.body, configuration, version)),
        plain_addresses(text.body) if gates.emulated.policy_flags else None,
    )


def _without_effect(body: Mapping[str, Any], configuration: Configuration, version: ApiVersion) -> Iterator[tuple[str, str]]:
    """Yield the fields of a document that have no effect here, each with what to use instead."""
    yield from ((name, said) for name, said in _ADDRESSES.items() if name in body)
    for i, profile in enumerate(configuration.profiles):
        if not version.has_multi_point and profile.plugins.multi_point != PluginSet():
            yield f"profiles[{i}].plugins.multiPoint", f"{version.short} ignores it, as kube-scheduler does"


def _reads_policy(release: str) -> bool:
    """Return True for a release that reads Policy documents."""
    return POLICY in RELEASES[release].documents


def _has_providers(release: str) -> bool:
    """Return True for a release that has algorithm providers."""
    return RELEASES[release].legacy_flags


def _hint(emulate: str | None) -> str:
    version = next((one for one in API_VERSIONS.values() if emulate in one.emulated), V1)
    return f"apiVersion: {version.name} and kind: {KIND}"


def _with_emulate(source: str, emulate: str | None) -> str:
    return source if emulate is None else f"{source}, --emulate {emulate}"


def load_default(rules: ReleaseRules, emulate: str | None = None) -> Loaded:
    """Return the configuration of a scheduler that gets no document."""
    if emulate is not None and _has_providers(emulate):
        return from_provider(DEFAULT_PROVIDER, rules, emulate)
    release = emulate or TODAY
    registry, gates = rules.registry(release), rules.gates(release)
    configuration, version = default_configuration(), default_version(gates.emulated)
    source = _with_emulate("defaults", emulate)
    return Loaded(source, version, release, configuration, resolve(configuration, registry, gates, version), registry, gates)


def from_provider(
    name: str, rules: ReleaseRules, emulate: str | None = None, profile: KubeSchedulerProfile = _UNNAMED
) -> Loaded:
    """Return the configuration of an algorithm provider. ``profile`` sets the profile's name and plugin arguments.

    Raises  InputError for an unknown provider, or for a release without providers
    """
    release = emulate or V1BETA1.rules
    if name not in PROVIDERS or not _has_providers(release):
        known = f"write {' or '.join(PROVIDERS)}" if _has_providers(release) else f"{release} has none"
        raise InputError(f'algorithm provider "{name}" is not registered; {known}')
    gates = rules.gates(release)
    sets = provider(name, gates)
    plugins = Plugins(**{_ATTRIBUTES[point]: PluginSet(enabled=named) for point, named in sets.items()})
    configuration = Configuration(profiles=(structs.replace(profile, plugins=plugins),))
    loaded, faults = _settled(_with_emulate(f"provider {name}", emulate), release, configuration, rules)
    refuse(f"provider {name}", faults, "an algorithm provider")
    return loaded


def from_policy(
    text: SchedulerText, rules: ReleaseRules, emulate: str | None = None, base: Configuration = _NOTHING_SAID
) -> Loaded:
    """Return the configuration of a Policy. ``base`` has all settings that a Policy lacks, and the name of the only profile.

    Raises  ConfigError with every fault found
    """
    release = emulate or V1BETA1.rules
    registry, gates = rules.registry(release), rules.gates(release)
    policy, faults = read_policy(text)
    if policy is None or faults:
        refuse(text.where, faults, POLICY)
        raise AssertionError("a policy that cannot be decoded has faults")
    configs = policy_configs(policy, registry, gates)
    named = base.profiles[0] if base.profiles else KubeSchedulerProfile()
    profile = structs.replace(named, plugins=policy_plugins(policy, gates), plugin_config=configs)
    configuration = structs.replace(base, profiles=(profile,), extenders=policy.extenders)
    loaded, more = _settled(_with_emulate(f"{POLICY} v1", emulate), release, configuration, rules)
    more = [in_policy(fault, policy, profile.plugins, gates) for fault in more]
    refuse(text.where, joined(policy_faults(policy, configs, gates), more), POLICY)
    runs_all = policy.always_check_all_predicates
    return replace(loaded, profiles=tuple(replace(one, run_all_filters=runs_all) for one in loaded.profiles))


def _settled(source: str, release: str, configuration: Configuration, rules: ReleaseRules) -> tuple[Loaded, list[Fault]]:
    """Resolve a configuration whose only profile lists all plugins."""
    registry, gates = rules.registry(release), rules.gates(release)
    configuration = with_defaults(configuration, release)
    profile = configuration.profiles[0]
    sets = {point: profile.plugins.at(point) for point in POINTS}
    expansion = settled(
        sets, profile.plugins, catalogue(registry, V1BETA1), "profiles[0].plugins", profile.scheduler_name or ""
    )
    add_own_points(expansion, registry, V1BETA1.plugin_points)
    found = resolved(configuration, profile, expansion, registry, gates)
    loaded = Loaded(source, V1BETA1, release, configuration, (found,), registry, gates, addresses=Addresses())
    return loaded, expansion.faults
