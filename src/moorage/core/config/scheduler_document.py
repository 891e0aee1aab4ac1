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

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import RELEASES, TODAY
from moorage.core.config.api_versions import API_VERSIONS, V1, V1BETA1, ApiVersion, default_version, version_of
from moorage.core.config.configuration import (
    Configuration,
    KubeSchedulerProfile,
    Plugins,
    PluginSet,
)
from moorage.core.config.configuration_defaults import with_defaults
from moorage.core.config.configuration_loader import default_configuration, joined, load_version
from moorage.core.config.document_reader import KIND, SchedulerText, not_registered, read_text, refuse
from moorage.core.config.plain_addresses import Addresses, plain_addresses
from moorage.core.config.plugin_sets import ReadProfile, settled
from moorage.core.config.policy import read_policy
from moorage.core.config.policy_plugins import in_policy, policy_configs, policy_faults, policy_plugins
from moorage.core.config.profiles import ResolvedProfile, add_own_points, catalogue, resolve, resolved
from moorage.core.config.release_plugins import DEFAULT_PROVIDER, POINTS, PROVIDERS, provider
from moorage.core.config.warnings import warnings_of
from moorage.errors import Fault, InputError
from moorage.framework.registry import Registry

# Plugin arguments: decode those of known plugins, and keep those of unknown plugins as plain data.
#
# Source  kube-scheduler 1.36.2, kube-scheduler/config/v1/types.go, PluginConfig


POLICY: Final = "Policy"


_ADDRESSES: Final = dict.fromkeys(
    ("healthzBindAddress", "metricsBindAddress"), "the flags --bind-address and --secure-port say where both are served"
)


_UNNAMED: Final = KubeSchedulerProfile()


_NOTHING_SAID: Final = Configuration()


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
        return f"rules of Kubernetes {self.release}{self.gates.emulated.basis} ({self.source})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what the document says to no effect, and installed plugins that others replace."""
        is_policy = not self.source.startswith(KIND)
        said = () if is_policy else warnings_of(self.configuration, self.profiles, self.registry)
        return (*said, *self.registry.replaced)

    @property
    def note(self) -> str:
        """Return what to know of a document in a form that its release does not read; "" for others."""
        if self.version.short == V1.short or self.release in self.version.emulated:
            return ""
        short, series, last = self.version.short, self.gates.emulated.series, self.version.last_reader
        return (
            f"kube-scheduler {series} does not read {short}, {self.version.read_by} do; it runs the plugins of {series} here. "
            f'"moorage config convert" writes it as v1, --emulate {last} decides as {last} did'
        )


#: The releases that read a Policy, in words.
_POLICY_READ_BY: Final = V1BETA1.read_by


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
        refuse(where, [not_registered(found.kind, found.version, known, _way_out(found, version, emulate))])
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


def _hint(emulate: str | None) -> str:
    version = next((one for one in API_VERSIONS.values() if emulate in one.emulated), V1)
    return f"apiVersion: {version.name} and kind: {KIND}"


def _way_out(text: SchedulerText, version: ApiVersion | None, emulate: str | None) -> str:
    """Return what to do with a document that the emulated release, or none, reads."""
    is_policy = (text.kind, text.version) == (POLICY, "v1")
    if emulate is None or (version is None and not is_policy):
        return f"write {_hint(emulate)}"
    read_by = _POLICY_READ_BY if version is None else version.read_by
    name = POLICY if version is None else version.short
    last = TODAY if version is V1 else read_by.rpartition(" ")[2]
    as_v1 = "" if version is V1 else ', and "moorage config convert" writes it as v1'
    return f"{RELEASES[emulate].series} does not read it; {read_by} read {name}, --emulate {last} does{as_v1}"


def _with_emulate(source: str, emulate: str | None) -> str:
    return source if emulate is None else f"{source}, --emulate {emulate}"


def load_default(rules: ReleaseRules, emulate: str | None = None) -> Loaded:
    """Return the configuration of a scheduler that gets no document."""
    if emulate is not None and RELEASES[emulate].legacy_flags:
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
    if name not in PROVIDERS or not RELEASES[release].legacy_flags:
        known = f"write {' or '.join(PROVIDERS)}" if RELEASES[release].legacy_flags else f"{release} has none"
        raise InputError(f'algorithm provider "{name}" is not registered; {known}')
    gates = rules.gates(release)
    sets = provider(name, gates)
    plugins = Plugins.of({point: PluginSet(enabled=named) for point, named in sets.items()})
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
    of = ReadProfile(catalogue(registry, V1BETA1), "profiles[0].plugins", profile.scheduler_name or "")
    expansion = settled(sets, profile.plugins, of)
    add_own_points(expansion, registry, V1BETA1.plugin_points)
    found = resolved(configuration, profile, expansion, registry, gates)
    loaded = Loaded(source, V1BETA1, release, configuration, (found,), registry, gates, addresses=Addresses())
    return loaded, expansion.faults
