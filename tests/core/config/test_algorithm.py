"""Flags of 1.19 to 1.21 that say which algorithm runs, alone and beside a configuration."""

from __future__ import annotations

import json

import pytest

from moorage.basis.inputs.scheduler_config import ConfigSource
from moorage.core.config.algorithm import Algorithm, load_algorithm
from moorage.core.config.plain_addresses import Addresses, plain_addresses, split_host_port
from moorage.core.config.scheduler_document import load_any, load_default
from moorage.core.config.written_configuration import as_written
from moorage.errors import ConfigError, InputError

RULES = ConfigSource()
LABELS = json.dumps({
    "apiVersion": "v1", "kind": "Policy", "hardPodAffinitySymmetricWeight": 7,
    "predicates": [{"name": "ssd", "argument": {"labelsPresence": {"labels": ["disk"], "presence": True}}}],
    "priorities": [{"name": "InterPodAffinityPriority", "weight": 2}],
    "extenders": [{"urlPrefix": "http://theirs"}],
}).encode()  # fmt: skip


def document(version="v1beta1", **body):
    return json.dumps({"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration", **body})


def load(given, config=None, emulate="1.21"):
    return load_algorithm(given, None if config is None else config.encode(), "config.yaml", RULES, emulate)


def policy(text=LABELS, **more):
    return Algorithm(policy=text, policy_where="policy.json", **more)


# -- without a configuration ---------------------------------------------------------------------------------------------


def test_without_a_configuration_flags_name_the_profile_and_weigh_pod_affinity():
    (profile,) = load(Algorithm(scheduler_name="mine", hard_pod_affinity_weight=3)).profiles
    assert (profile.scheduler_name, profile.args["InterPodAffinity"].hard_pod_affinity_weight) == ("mine", 3)
    assert profile.points == load_default(RULES, "1.21").profiles[0].points


def test_a_policy_has_its_own_weight_of_pod_affinity_or_the_default_one():
    (profile,) = load(policy(scheduler_name="mine", hard_pod_affinity_weight=3)).profiles
    assert (profile.scheduler_name, profile.args["InterPodAffinity"].hard_pod_affinity_weight) == ("mine", 7)
    silent = json.dumps({"apiVersion": "v1", "kind": "Policy"}).encode()
    (profile,) = load(policy(silent, hard_pod_affinity_weight=3)).profiles
    assert profile.args["InterPodAffinity"].hard_pod_affinity_weight == 1


@pytest.mark.parametrize("release", ["1.19", "1.20", "1.21"])
def test_a_provider_is_that_of_the_release(release):
    (profile,) = load(Algorithm(provider="ClusterAutoscalerProvider"), emulate=release).profiles
    assert "NodeResourcesMostAllocated" in profile.points["score"]
    assert ("SelectorSpread" in profile.points["score"]) is (release == "1.19")


def test_a_policy_takes_precedence_over_a_provider():
    (profile,) = load(policy(provider="Nope")).profiles
    assert profile.points["filter"] == ("NodeUnschedulable", "TaintToleration", "NodeLabel")


# -- beside a configuration ----------------------------------------------------------------------------------------------


def test_a_configuration_sets_what_a_policy_does_not():
    found = load(
        policy(scheduler_name="not this"),
        document(
            profiles=[{"schedulerName": "theirs"}], leaderElection={"resourceName": "mine"}, podMaxBackoffSeconds=20,
            healthzBindAddress="127.0.0.1:80", extenders=[{"urlPrefix": "http://gone"}],
        ),
    )  # fmt: skip
    assert found.profiles[0].scheduler_name == "theirs"
    assert found.configuration.leader_election.resource_name == "mine"
    assert found.configuration.pod_max_backoff_seconds == 20
    assert [one.url_prefix for one in found.configuration.extenders] == ["http://theirs"]
    assert found.addresses == Addresses("127.0.0.1:80")


CLASHES = {  # profiles of the file
    "plugins": [{"plugins": {"score": {"disabled": [{"name": "*"}]}}}],
    "arguments": [{"pluginConfig": [{"name": "NodeLabel", "args": {}}]}],
    "two of them": [{"schedulerName": "a"}, {"schedulerName": "b"}],
}


@pytest.mark.parametrize("profiles", CLASHES.values(), ids=CLASHES)
def test_a_policy_excludes_plugins_of_a_file(profiles):
    with pytest.raises(InputError, match=r"^cannot set a Plugin config and Policy config$"):
        load(policy(), document(profiles=profiles))


def test_profiles_of_a_file_are_laid_over_the_provider():
    plugins = {"score": {"disabled": [{"name": "ImageLocality"}]}}
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b", "plugins": plugins}]
    first, second = load(Algorithm(provider="ClusterAutoscalerProvider"), document(profiles=profiles)).profiles
    assert "NodeResourcesMostAllocated" in first.points["score"]
    assert set(first.points["score"]) - set(second.points["score"]) == {"ImageLocality"}


def test_without_algorithm_flags_a_file_is_unchanged():
    text = document()
    assert load(Algorithm(scheduler_name="not this"), text).profiles == load_any(text.encode(), "", RULES, "1.21").profiles


REFUSED = {  # flags, file → the words
    "an unknown provider": (
        Algorithm(provider="Nope"),
        None,
        'couldn\'t create scheduler using provider "Nope": algorithm provider "Nope" is not registered',
    ),
    "an unknown provider beside a file": (
        Algorithm(provider="Nope"),
        document(),
        'algorithm provider "Nope" is not registered',
    ),
    "no policy": (policy(b"{}"), None, "invalid policy: policy.json: kind: Required value: Object 'Kind' is missing"),
    "another kind": (policy(document().encode()), None, 'no kind "KubeSchedulerConfiguration" is registered'),
    "a bad policy": (
        policy(b"{apiVersion: v1, kind: Policy, predicates: [{name: Nope}], hardPodAffinitySymmetricWeight: 101}"),
        None,
        "couldn't create scheduler from policy: policy.json: [predicates[0].name: Not found: ",
    ),
    "a file of today": (policy(), document("v1"), 'is registered for version "kubescheduler.config.k8s.io/v1"'),
    "two policies": (policy(), LABELS.decode(), "cannot be combined with another"),
}


@pytest.mark.parametrize(("given", "config", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("emulate", [None, "1.20"])
def test_what_is_refused(given, config, words, emulate):
    with pytest.raises((InputError, ConfigError)) as refusal:
        load(given, config, emulate)
    assert words in str(refusal.value)


# -- serving and standing for a lock -------------------------------------------------------------------------------------

SERVED = {  # what the file says of health → what it comes to
    "nothing": ({}, "0.0.0.0:10251"),
    "a port": ({"healthzBindAddress": ":80"}, "0.0.0.0:80"),
    "an address": ({"healthzBindAddress": "127.0.0.1"}, "127.0.0.1:10251"),
    "an address of version 6": ({"healthzBindAddress": "::1"}, "[::1]:10251"),
    "both of version 6": ({"healthzBindAddress": "[::1]:80"}, "[::1]:80"),
    "no address": ({"healthzBindAddress": "here"}, "0.0.0.0:10251"),
    "the empty text": ({"healthzBindAddress": ""}, "0.0.0.0:10251"),
}


@pytest.mark.parametrize(("body", "address"), SERVED.values(), ids=SERVED)
def test_addresses_are_completed_as_v1beta1_does(body, address):
    found = load_any(document(**body).encode(), "", RULES)
    assert found.addresses == Addresses(address, "0.0.0.0:10251")
    written = as_written(found)
    assert (written["healthzBindAddress"], written["metricsBindAddress"]) == (address, "0.0.0.0:10251")
    assert plain_addresses(written) == found.addresses


def test_only_older_releases_serve_over_plain_http():
    for version in ("v1", "v1beta2", "v1beta3"):
        found = load_any(document(version).encode(), "", RULES)
        assert found.addresses is None
        assert "healthzBindAddress" not in as_written(found)


SPLIT = {"a:1": ("a", "1"), ":1": ("", "1"), "[::1]:1": ("::1", "1"), "::1": None, "a": None, "[::1]": None, "[[a]:1": None}


@pytest.mark.parametrize(("address", "parts"), SPLIT.items(), ids=SPLIT)
def test_host_and_port_are_split_as_go_does(address, parts):
    assert split_host_port(address) == parts


FAULTS = {  # what the file says, the field, the words
    "port 0": ({"healthzBindAddress": ":0"}, "healthzBindAddress", "must be between 1 and 65535, inclusive"),
    "a port too large": ({"metricsBindAddress": "[::]:70000"}, "metricsBindAddress", "must be between 1 and 65535, inclusive"),
    "a name": ({"metricsBindAddress": "here:80"}, "metricsBindAddress", "must be a valid IP address"),
    "no time": ({"leaderElection": {"retryPeriod": "-1s"}}, "leaderElection.retryPeriod", "must be greater than zero"),
    "a short lease": (
        {"leaderElection": {"leaseDuration": "1s"}},
        "leaderElection.leaseDuration",
        'Invalid value: "10s": LeaseDuration must be greater than RenewDeadline',
    ),
}


@pytest.mark.parametrize(("body", "field", "words"), FAULTS.values(), ids=FAULTS)
def test_documents_that_the_release_rejects(body, field, words):
    with pytest.raises(ConfigError) as refusal:
        load_any(document(**body).encode(), "", RULES)
    (fault,) = [fault for fault in refusal.value.faults if fault.field == field]
    assert words in fault.body


@pytest.mark.parametrize("lock", ["endpoints", "configmaps", "leases", "endpointsleases", "configmapsleases"])
def test_resource_locks_of_the_old_release_are_accepted(lock):
    found = load_any(document(leaderElection={"resourceLock": lock}).encode(), "", RULES)
    assert found.configuration.leader_election.resource_lock == lock


LOCKS = {"1.19": "endpointsleases", "1.20": "leases", "1.21": "leases"}


@pytest.mark.parametrize(("release", "lock"), LOCKS.items(), ids=LOCKS)
def test_each_release_has_its_default_lock(release, lock):
    for found in (load(Algorithm(), None, release), load(policy(), None, release), load(Algorithm(), document(), release)):
        assert found.configuration.leader_election.resource_lock == lock
