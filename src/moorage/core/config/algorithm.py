"""The algorithm flags of kube-scheduler 1.19 to 1.22: a Policy, an algorithm provider, a scheduler name.

A Policy replaces the plugins: it may be combined with a file whose only profile configures no plugins, in 1.22 with any file,
whose profiles it replaces. A provider sets the
default plugins of the file's profiles. Without a file there is one profile; flags set its name and pod affinity weight.

Source  kube-scheduler 1.21, cmd/kube-scheduler/app/options: deprecated.go and options.go; pkg/scheduler/scheduler.go, New
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from moorage.core.config.api_versions import V1BETA1, v1beta1_over
from moorage.core.config.configuration import Configuration, KubeSchedulerProfile, PluginConfig, Plugins
from moorage.core.config.document_reader import KIND, not_registered, read_text
from moorage.core.config.release_plugins import DEFAULT_PROVIDER, PROVIDERS
from moorage.core.config.scheduler_document import POLICY, Loaded, ReleaseRules, from_policy, from_provider, load_any, load_as
from moorage.errors import ConfigError, InputError
from moorage.framework.registry import Registry

_AFFINITY = "InterPodAffinity"
_HINT = f"apiVersion: {V1BETA1.name} and kind: {KIND}"
_POLICY_HINT = f"apiVersion: v1 and kind: {POLICY}"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The flags. ``policy`` is the text of a Policy, and ``policy_where`` its name in messages; it overrides ``provider``.

    ``scheduler_name`` and ``hard_pod_affinity_weight`` apply only without a configuration.
    """

    provider: str = ""
    policy: bytes | None = None
    policy_where: str = ""
    scheduler_name: str = ""
    hard_pod_affinity_weight: int | None = None


def load_algorithm(
    given: Algorithm, config: bytes | None, where: str, rules: ReleaseRules, emulate: str | None = None
) -> Loaded:
    """Load a configuration with these flags, under the release to emulate or else 1.21.

    Raises  ConfigError, InputError
    """
    if config is None:
        return _from_flags(given, rules, emulate)
    if given.policy is None and not given.provider:
        return load_any(config, where, rules, emulate)
    text = read_text(config, where, _HINT)
    if text.kind == POLICY:
        raise InputError(
            f"{where}: a {POLICY} cannot be combined with another {POLICY} or an algorithm provider; name one of them"
        )
    gates = rules.gates(emulate or V1BETA1.rules)
    if given.policy is not None and not gates.emulated.legacy_flags:
        return _policy_instead(load_any(config, where, rules, emulate), given, rules, emulate)
    if (text.kind, text.version) != (KIND, V1BETA1.name):
        return load_any(config, where, rules, emulate or V1BETA1.rules)  # raises: the release does not read it
    if given.policy is not None:
        return _policy_over(load_as(V1BETA1, text, rules, emulate), given, rules, emulate)
    _check_provider(given.provider)
    return load_as(v1beta1_over(given.provider), text, rules, emulate)


def _from_flags(given: Algorithm, rules: ReleaseRules, emulate: str | None) -> Loaded:
    profile = KubeSchedulerProfile(scheduler_name=given.scheduler_name or None)
    if given.policy is not None:
        return _from_policy(given, rules, emulate, Configuration(profiles=(profile,)))
    provider = given.provider or DEFAULT_PROVIDER
    _check_provider(provider)
    affinity = _affinity(given, rules.registry(emulate or V1BETA1.rules))
    return from_provider(provider, rules, emulate, structs.replace(profile, plugin_config=affinity))


def _check_provider(name: str) -> None:
    if name not in PROVIDERS:
        text = f'couldn\'t create scheduler using provider "{name}": algorithm provider "{name}" is not registered'
        raise InputError(f"{text}; use {' or '.join(PROVIDERS)}")


def _affinity(given: Algorithm, registry: Registry) -> tuple[PluginConfig, ...]:
    args = registry.args_type(_AFFINITY)
    if given.hard_pod_affinity_weight is None or args is None:
        return ()
    return (PluginConfig(name=_AFFINITY, args=args(hard_pod_affinity_weight=given.hard_pod_affinity_weight)),)


# -- policies -----------------------------------------------------------------------------------------------------------


def _policy_over(loaded: Loaded, given: Algorithm, rules: ReleaseRules, emulate: str | None) -> Loaded:
    """Load a Policy, with all other settings from a configuration."""
    profiles = loaded.configuration.profiles
    if len(profiles) != 1 or profiles[0].plugin_config or profiles[0].plugins != Plugins():
        raise InputError("cannot set a Plugin config and Policy config")
    found = _from_policy(given, rules, emulate, loaded.configuration)
    return replace(found, addresses=loaded.addresses, unused=loaded.unused)


def _policy_instead(loaded: Loaded, given: Algorithm, rules: ReleaseRules, emulate: str | None) -> Loaded:
    """Load a Policy in place of the profiles of a configuration."""
    found = _from_policy(given, rules, emulate, structs.replace(loaded.configuration, profiles=()))
    return replace(found, addresses=loaded.addresses, unused=loaded.unused)


def _from_policy(given: Algorithm, rules: ReleaseRules, emulate: str | None, base: Configuration) -> Loaded:
    where = given.policy_where
    try:
        text = read_text(given.policy or b"", where, _POLICY_HINT)
        if (text.kind, text.version) != (POLICY, "v1"):
            fault = not_registered(text.kind, text.version, {POLICY}, f"write {_POLICY_HINT}")
            raise InputError(f"invalid policy: {where}: {fault}")
    except ConfigError as error:
        raise InputError(f"invalid policy: {where}: {_in_brackets(error)}") from None
    try:
        return from_policy(text, rules, emulate, base)
    except ConfigError as error:
        if not error.faults or all(fault.field.startswith("featureGates.") for fault in error.faults):
            raise
        raise InputError(f"couldn't create scheduler from policy: {where}: {_in_brackets(error)}") from None


def _in_brackets(error: ConfigError) -> str:
    """Return the faults as one text, in Go's format for an aggregate error: several are in brackets."""
    texts = [str(fault) for fault in error.faults]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
