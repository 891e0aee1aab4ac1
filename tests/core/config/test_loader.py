"""Reading a configuration strictly: each kind of mistake, all of them at once, and what is read generously."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.configuration import Configuration, PluginRef
from moorage.core.config.configuration_loader import default_configuration, load
from moorage.errors import ConfigError, Fault, InputError, MoorageError
from moorage.framework.args import Duration, PluginArgs
from moorage.framework.registry import Registry
from moorage.plugins import BUILTIN
from moorage.plugins.dynamic_resources import DynamicResourcesArgs
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.volume_binding import VolumeBindingArgs

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class MineArgs(PluginArgs, frozen=True):
    needed: str
    mode: Literal["a", "b"] = "a"
    names: tuple[Annotated[str, msgspec.Meta(pattern="^[a-z]*$")], ...] = ()
    limits: dict[str, int] = {}
    either: int | str = 0
    share: float = 0.5
    patience: Duration = 1.0

    def faults(self, path, gates):
        return [Fault("Invalid value", f"{path}.needed", "is useless", self.needed)] if self.needed == "useless" else []


class Mine:
    """A custom plugin with arguments."""

    name = "Mine"
    Args = MineArgs

    def __init__(self, args):
        self.args = args

    def filter_node(self, state, node):
        return None


class Bare:
    """A custom plugin without arguments."""

    name = "Bare"

    def filter_node(self, state, node):
        return None


#: The default shape: volumes with more room score higher.
EMPTIER = (UtilizationPoint(0, 10), UtilizationPoint(100, 0))
REGISTRY = Registry((*BUILTIN, Mine, Bare), {"DynamicResources": DynamicResourcesArgs, "VolumeBinding": VolumeBindingArgs})


def read(body, header=HEADER, gates=""):
    return load((header + body).encode(), "test.yaml", REGISTRY, FeatureGates.parse(gates))


def faults_of(body, header=HEADER):
    with pytest.raises(ConfigError) as caught:
        read(body, header)
    return [str(fault) for fault in caught.value.faults]


def args_of(plugin, body):
    """The arguments of a plugin as they are read; the plugin runs, so that they are checked."""
    config = read(f"profiles:\n- pluginConfig:\n  - name: {plugin}\n    args: {body}").profiles[0].plugin_config[0]
    assert config.name == plugin
    return config.args


CANNOT = "json: cannot unmarshal"
ROOT = "KubeSchedulerConfiguration"
MISTAKES = {
    "unknown field": ("x: 1", 'x: Strict decoding error: unknown field "x"; known here: parallelism'),
    "a typing mistake": ("profils: []", 'profils: Strict decoding error: unknown field "profils"; did you mean "profiles"?'),
    "wrong case": (
        "Parallelism: 1",
        'Parallelism: Strict decoding error: unknown field "Parallelism"; names are case-sensitive',
    ),
    "unknown field deep down": (
        "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {filter: {enable: []}}}]",
        'profiles[1].plugins.filter.enable: Strict decoding error: unknown field "profiles[1].plugins.filter.enable"; did you',
    ),
    "field twice": ("parallelism: 1\nparallelism: 1", 'parallelism: Strict decoding error: line 4: key "parallelism" already'),
    "text for a number": (
        "parallelism: '3'",
        f'parallelism: Invalid value: "3": {CANNOT} string into Go struct field {ROOT}.parallelism of type int32',
    ),
    "a broken number": (
        "parallelism: 1.5",
        f"parallelism: Invalid value: 1.5: {CANNOT} number 1.5 into Go struct field {ROOT}.parallelism of type int32",
    ),
    "beyond 32 bits": ("parallelism: 2147483648", f"parallelism: Invalid value: 2147483648: {CANNOT} number 2147483648 into"),
    "beyond 64 bits": (
        "podMaxBackoffSeconds: 9223372036854775808",
        f"{ROOT}.podMaxBackoffSeconds of type int64",
    ),
    "beyond a float": ("clientConnection: {qps: 1e39}", "ClientConnectionConfiguration.clientConnection.qps of type float32"),
    "truth for a number": ("parallelism: yes", f"parallelism: Invalid value: true: {CANNOT} bool into"),
    "number for truth": ("delayCacheUntilActive: 1", f"{CANNOT} number into Go struct field"),
    "number for text": (
        "profiles: [{schedulerName: 3}]",
        f"profiles[0].schedulerName: Invalid value: 3: {CANNOT} number into Go struct field KubeSchedulerProfile.profiles.sch",
    ),
    "one for many": (
        "profiles: {}",
        f"{CANNOT} object into Go struct field {ROOT}.profiles of type []v1.Kube",
    ),
    "many for one": (
        "leaderElection: []",
        f"{CANNOT} array into Go struct field {ROOT}.leaderElection of type",
    ),
    "text for a plugin": (
        "profiles: [{plugins: {filter: {enabled: [NodeName]}}}]",
        'profiles[0].plugins.filter.enabled[0]: Invalid value: "NodeName": json: cannot unmarshal string',
    ),
    "weight of 2^31": (
        "profiles: [{plugins: {score: {enabled: [{name: ImageLocality, weight: 2147483648}]}}}]",
        f"{CANNOT} number 2147483648 into Go struct field Plugin.profiles.plugins.score.enabled.weight of type int32",
    ),
    "duration without unit": (
        "leaderElection: {leaseDuration: '15'}",
        'leaderElection.leaseDuration: Invalid value: "15": time: missing unit in duration "15"; write a duration',
    ),
    "number for a duration": ("leaderElection: {leaseDuration: 15}", f"{CANNOT} number into Go value of type string"),
    "nothing for a duration": ("leaderElection: {leaseDuration: }", 'time: invalid duration ""'),
    "data that is not base64": ("extenders: [{tlsConfig: {caData: '?'}}]", "extenders[0].tlsConfig.caData: Invalid value"),
    "not a mapping": ("", "couldn't get version/kind", "[1, 2]"),
    "a bare word": ("", "couldn't get version/kind", "hello"),
    "kind is no text": ("", "kind: Invalid value: 3: couldn't get version/kind", "kind: 3\napiVersion: v1\n"),
    "no version": ("", "apiVersion: Required value: Object 'apiVersion' is missing", "kind: KubeSchedulerConfiguration\n"),
    "another kind": ("", 'kind: Unsupported value: "Pod": no kind "Pod" is registered', "kind: Pod\napiVersion: v1\n"),
    "old version": (
        "",
        'apiVersion: Unsupported value: "kubescheduler.config.k8s.io/v1alpha1"',
        HEADER.replace("v1", "v1alpha1"),
    ),
    "comments only": ("", "kind: Required value: Object 'Kind' is missing in '# nothing", "# nothing\n"),
    "two documents": ("---\n" + HEADER, "Too many: 2: found 2 documents; one file holds one KubeSchedulerConfiguration"),
    "arguments that are a list": (
        "profiles: [{pluginConfig: [{name: NodeAffinity, args: []}]}]",
        f'profiles[0].pluginConfig[0].args: Invalid value: "…": {CANNOT} array into Go value of type v1.NodeAffinityArgs',
    ),
    "arguments for who takes none": (
        "profiles: [{pluginConfig: [{name: Bare, args: {a: 1}}]}]",
        "profiles[0].pluginConfig[0].args: Forbidden: plugin Bare takes no arguments",
    ),
}


@pytest.mark.parametrize(("case"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_rejected(case):
    body, words, *header = case
    found = faults_of(body, *header)
    assert len(found) == 1
    assert words in found[0]


def test_all_mistakes_are_reported_at_once():
    found = faults_of(
        """
parallelism: many
parallelism: 0
podMaxBackoffSeconds: -1
leaderelection: {}
profiles:
- schedulerName: a
  plugins: {filter: {enabled: [{name: Nope}]}}
  pluginConfig:
  - {name: NodeResourcesFit, args: {ignoredResources: [7, "-"], kind: NodeResourcesFitArgs}}
- percentageOfNodesToScore: 200
extenders:
- {bindverb: x}
"""
    )
    assert [fault.partition(": ")[0] for fault in found] == [
        "parallelism",  # stands twice
        "leaderelection",
        "extenders[0].bindverb",
        "profiles[0].pluginConfig[0].args.ignoredResources[0]",
        "profiles[1].schedulerName",
        "profiles[1].percentageOfNodesToScore",
        "podMaxBackoffSeconds",
        "profiles[0].plugins.filter.enabled[0]",
        "profiles[0].pluginConfig[0].args.ignoredResources[1]",
    ]


def test_consequences_of_a_mistake_are_not_reported():
    """Without its name the profile would also lack one, and the plugin would be unknown."""
    found = faults_of("profiles: [{schedulerName: 3}, {schedulerName: b, plugins: {filter: {enabled: [{name: 4}]}}}]")
    assert [fault.partition(": ")[0] for fault in found] == [
        "profiles[0].schedulerName",
        "profiles[1].plugins.filter.enabled[0].name",
        "profiles[1].plugins.filter.enabled[0]",
    ]


def test_duplicates_in_json_carry_their_path():
    with pytest.raises(ConfigError) as caught:
        load(
            b'{"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1",\n'
            b' "profiles": [{"schedulerName": "a", "schedulerName": "b"}]}',
            "test.json", REGISTRY, FeatureGates(),
        )  # fmt: skip
    assert [str(fault) for fault in caught.value.faults] == [
        'profiles[0].schedulerName: Strict decoding error: line 2: duplicate field "profiles[0].schedulerName"'
    ]


@pytest.mark.parametrize("text", [b"{", b"a: [", b"\x1f\x8b\x08", b"a: \x00", b"\t- a", b"&a [*a]"])
def test_invalid_yaml_is_reported_with_its_position(text):
    with pytest.raises(InputError, match=r"^test.yaml:1: "):
        load(text, "test.yaml", REGISTRY, FeatureGates())


# -- what is read generously ------------------------------------------------------------------------------------------


def test_an_empty_document_gives_the_defaults():
    assert read("") == default_configuration()
    assert default_configuration().profiles[0].scheduler_name == "default-scheduler"


@pytest.mark.parametrize(
    "body",
    [
        "parallelism: null",
        "parallelism: 16.0",
        "parallelism: 0x10",
        "leaderElection: null",
        "leaderElection: {leaderElect: null, resourceLock: null}",
        "profiles: null",
        "profiles: [null]",
        "profiles: [{plugins: null, pluginConfig: null, schedulerName: null}]",
        "profiles: [{plugins: {filter: {enabled: null}, score: null}}]",
        "clientConnection: {qps: 0, burst: 0, contentType: ''}",
        "leaderElection: {leaseDuration: 0s, renewDeadline: '0'}",
        "enableProfiling: true",
        "extenders: []",
    ],
)
def test_null_zero_and_other_spellings_mean_the_default(body):
    assert read(body) == default_configuration()


def test_null_in_a_list_is_a_zero_value():
    given = read("extenders: [null, {weight: 3}]").extenders
    assert [extender.weight for extender in given] == [0, 3]


def test_json_is_read_as_well():
    header = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 3}'
    assert read("", header).parallelism == 3


def test_the_whole_document_arrives():
    given = read(
        """
parallelism: 2
percentageOfNodesToScore: 7
podInitialBackoffSeconds: 3
podMaxBackoffSeconds: 4
delayCacheUntilActive: true
enableProfiling: false
leaderElection: {leaseDuration: 1m, renewDeadline: 30s, retryPeriod: 500ms, resourceName: x, resourceNamespace: z}
clientConnection: {kubeconfig: k, acceptContentTypes: a, contentType: c, qps: 1.5, burst: 9}
profiles:
- schedulerName: a
  percentageOfNodesToScore: 0
  plugins: {score: {enabled: [{name: ImageLocality, weight: 5}], disabled: [{name: "*"}]}}
extenders:
- urlPrefix: https://example.com
  filterVerb: f
  preemptVerb: p
  prioritizeVerb: r
  bindVerb: b
  weight: 2
  enableHTTPS: true
  nodeCacheCapable: true
  ignorable: true
  httpTimeout: 2s
  managedResources: [{name: example.com/x, ignoredByScheduler: true}]
  tlsConfig: {insecure: true, serverName: s, certFile: c, keyFile: k, caFile: a, certData: YQ==, keyData: Yg==, caData: Yw==}
"""
    )
    assert isinstance(given, Configuration)
    assert (given.parallelism, given.percentage_of_nodes_to_score, given.delay_cache_until_active) == (2, 7, True)
    assert (given.pod_initial_backoff_seconds, given.pod_max_backoff_seconds) == (3, 4)
    assert (given.enable_profiling, given.enable_contention_profiling) == (False, False)
    election = given.leader_election
    assert (election.lease_duration, election.renew_deadline, election.retry_period) == (60.0, 30.0, 0.5)
    assert (election.resource_lock, election.resource_name, election.resource_namespace) == ("leases", "x", "z")
    connection = given.client_connection
    assert (connection.kubeconfig, connection.qps, connection.burst) == ("k", 1.5, 9)
    profile = given.profiles[0]
    assert (profile.scheduler_name, profile.percentage_of_nodes_to_score) == ("a", 0)
    assert profile.plugins.score.enabled == (PluginRef(name="ImageLocality", weight=5),)
    assert profile.plugins.at("score").disabled_names == {"*"}
    extender = given.extenders[0]
    assert (extender.url_prefix, extender.http_timeout, extender.enable_https) == ("https://example.com", 2.0, True)
    assert extender.managed_resources[0].ignored_by_scheduler
    assert extender.tls_config is not None
    assert (extender.tls_config.cert_data, extender.tls_config.key_data, extender.tls_config.ca_data) == (b"a", b"b", b"c")


# -- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_may_name_their_kind():
    header = "apiVersion: kubescheduler.config.k8s.io/v1, kind: VolumeBindingArgs, "
    assert args_of("VolumeBinding", f"{{{header}bindTimeoutSeconds: 3}}") == VolumeBindingArgs(
        bind_timeout_seconds=3, shape=EMPTIER
    )


@pytest.mark.parametrize("body", ["{}", "null", ""])
def test_arguments_left_out_are_the_defaults(body):
    assert args_of("VolumeBinding", body) == VolumeBindingArgs(shape=EMPTIER)


def test_argument_defaults_depend_on_the_gates():
    body = "profiles: [{pluginConfig: [{name: VolumeBinding}, {name: DynamicResources, args: {filterTimeout: 1s}}]}]"
    plain = read(body, gates="StorageCapacityScoring=false").profiles[0].plugin_config
    assert plain[0].args.shape is None
    assert (plain[1].args.filter_timeout, plain[1].args.binding_timeout) == (1.0, 600.0)
    gated = read(body, gates="DRADeviceBindingConditions=false").profiles[0].plugin_config
    assert [(point.utilization, point.score) for point in gated[0].args.shape] == [(0, 10), (100, 0)]
    assert gated[1].args.binding_timeout is None


def test_arguments_of_an_unknown_plugin_stay_as_they_are():
    assert args_of("Unheard", "{a: [1, {b: null}]}") == {"a": [1, {"b": None}]}


def test_arguments_that_the_release_ignores_are_accepted():
    assert args_of("NodeName", "{a: 1}") == {"a": 1}


def test_a_custom_plugin_gets_its_arguments():
    body = "{needed: x, mode: b, names: [a, null], limits: {a: 1, b: null}, either: t, share: 1, patience: 1m}"
    assert args_of("Mine", body) == MineArgs(
        needed="x", mode="b", names=("a", ""), limits={"a": 1, "b": 0}, either="t", share=1.0, patience=60.0
    )


MINE = {
    "needed": ("{}", "args.needed: Required value"),
    "unknown": ("{needed: x, neded: y}", 'args.neded: Strict decoding error: unknown field "neded"; did you mean "needed"?'),
    "not one of": ("{needed: x, mode: c}", "args.mode: Invalid value"),
    "pattern": ("{needed: x, names: [a, B]}", "args.names[1]: Invalid value"),
    "of a map": ("{needed: x, limits: {a: b}}", "args.limits[a]: Invalid value"),
    "own rule": ("{needed: useless}", 'args.needed: Invalid value: "useless": is useless'),
    "another kind": ("{needed: x, kind: YoursArgs}", "args.kind: Unsupported value"),
}


@pytest.mark.parametrize(("body", "words"), MINE.values(), ids=MINE)
def test_arguments_of_custom_plugins_are_validated(body, words):
    plugins = "plugins: {filter: {enabled: [{name: Mine}]}}"
    found = faults_of(f"profiles: [{{pluginConfig: [{{name: Mine, args: {body}}}], {plugins}}}]")
    assert len(found) == 1
    assert words in found[0]


def test_required_arguments_must_be_given():
    found = faults_of("profiles: [{plugins: {filter: {enabled: [{name: Mine}]}}}]")
    assert found == ["profiles[0].pluginConfig: Required value: plugin Mine needs arguments: needed"]


# -- anything at all --------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
names = st.sampled_from([*Configuration.__struct_encode_fields__, "name", "args", "enabled", "plugins", "filter", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(body=st.dictionaries(names, values, max_size=4))
def test_every_document_is_loaded_or_rejected(body):
    text = msgspec.json.encode({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **body})
    try:
        load(text, "test.json", REGISTRY, FeatureGates())
    except MoorageError as refused:
        error = refused
    else:
        return
    assert str(error).startswith("test.json:")
    assert isinstance(error, InputError) or error.faults


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_or_rejected(text):
    with pytest.raises(MoorageError):
        load(text, "test.yaml", REGISTRY, FeatureGates())
