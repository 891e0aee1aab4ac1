"""Flags are read as Kubernetes' programs read them."""

import click
import pytest

from moorage.interfaces.cli.live.release_flags import FLAGS, LEADER_FIELDS
from moorage.interfaces.cli.pflag import Flag, read_flags

KINDS = (
    Flag("name", "str", "x", "", ""),
    Flag("leader-elect", "bool", True, "", ""),
    Flag("count", "int", 1, "", ""),
    Flag("qps", "float", 50.0, "", ""),
    Flag("lease", "duration", 15.0, "", ""),
    Flag("paths", "list", ("/a",), "", ""),
    Flag("plugin", "each", (), "", ""),
    Flag("allow", "map", {}, "", ""),
    Flag("version", "version", "false", "", ""),
    Flag("v", "int", 0, "", "", short="v"),
)

READ = {  # words, flag, value
    "a value in the next word": (["--name", "y"], "name", "y"),
    "a value after =": (["--name=y=z"], "name", "y=z"),
    "an empty value": (["--name="], "name", ""),
    "underscores": (["--leader_elect=false"], "leader-elect", False),
    "true by its name": (["--leader-elect"], "leader-elect", True),
    "false in one letter": (["--leader-elect=f"], "leader-elect", False),
    "a number": (["--count", "-3"], "count", -3),
    "a number in base 16": (["--count=0x10"], "count", 16),
    "a fraction": (["--qps=0.5"], "qps", 0.5),
    "a duration": (["--lease=1m30s"], "lease", 90.0),
    "a list takes the default's place": (["--paths=/b,/c"], "paths", ["/b", "/c"]),
    "a list goes on": (["--paths=/b", "--paths=/c,/d"], "paths", ["/b", "/c", "/d"]),
    "a list of quoted parts": (['--paths="a,b",c'], "paths", ["a,b", "c"]),
    "an empty list": (["--paths="], "paths", []),
    "one value each time": (["--plugin=a,b", "--plugin=c"], "plugin", ["a,b", "c"]),
    "a map": (["--allow=a=1,b=2", "--allow", "c=3"], "allow", {"a": "1", "b": "2", "c": "3"}),
    "a map whose names and values hold commas": (["--allow", '"m,l=v1,v2"'], "allow", {"m,l": "v1,v2"}),
    "the last one counts": (["--name=a", "--name=b"], "name", "b"),
    "a letter": (["-v", "4"], "v", 4),
    "a letter with =": (["-v=4"], "v", 4),
    "a letter and its value": (["-v4"], "v", 4),
    "a letter's long form": (["--v=4"], "v", 4),
    "the version": (["--version"], "version", "true"),
    "the version, raw": (["--version=raw"], "version", "raw"),
}


@pytest.mark.parametrize(("words", "flag", "value"), READ.values(), ids=READ)
def test_values(words, flag, value):
    given, rest = read_flags(KINDS, words)
    assert given[flag] == value
    assert given.changed == {flag}
    assert rest == []


REFUSED = {
    "an unknown flag": (["--nmae=x"], "unknown flag: --nmae"),
    "an unknown letter": (["-x"], "unknown shorthand flag"),
    "a flag without its value": (["--name"], "flag needs an argument: --name"),
    "no truth": (["--leader-elect=maybe"], 'invalid argument "maybe" for "--leader-elect" flag: strconv.ParseBool'),
    "no number": (["--count=1.5"], 'invalid argument "1.5" for "--count" flag: strconv.ParseInt'),
    "no number but Python's": (["--count=1_0"], "strconv.ParseInt"),
    "no fraction": (["--qps=x"], "strconv.ParseFloat"),
    "no duration": (["--lease=15"], 'invalid argument "15" for "--lease" flag'),
    "no map": (["--allow=a"], "a must be formatted as key=value"),
    "no flag at all": (["--=x"], "bad flag syntax"),
}


@pytest.mark.parametrize(("words", "text"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(words, text):
    with pytest.raises(click.ClickException) as refusal:
        read_flags(KINDS, words)
    assert text in refusal.value.message
    assert "\n" not in refusal.value.message


def test_positional_arguments_are_kept():
    given, rest = read_flags(KINDS, ["--leader-elect", "false", "-", "--", "--name=x"])
    assert given["leader-elect"] is True
    assert rest == ["false", "-", "--name=x"]


def test_every_flag_is_shown_as_it_would_be_written():
    given, _ = read_flags(KINDS, ["--lease=90s", "--paths=/b,/c", "--allow=a=1", "--qps=2"])
    assert given.shown(KINDS) == {
        "name": "x", "leader-elect": "true", "count": "1", "qps": "2", "lease": "1m30s", "paths": "[/b,/c]", "plugin": "[]",
        "allow": "[a=1]", "version": "false", "v": "0",
    }  # fmt: skip


#: From kube-scheduler 1.36's own --help: every flag, with its default.
UPSTREAM = """
allow-metric-labels=[] allow-metric-labels-manifest= authentication-kubeconfig= authentication-skip-lookup=false
authentication-token-webhook-cache-ttl=10s authentication-tolerate-lookup-failure=true
authorization-always-allow-paths=[/healthz,/readyz,/livez] authorization-kubeconfig=
authorization-webhook-cache-authorized-ttl=10s authorization-webhook-cache-unauthorized-ttl=10s bind-address=0.0.0.0 cert-dir=
client-ca-file= config= contention-profiling=true disable-http2-serving=false disabled-metrics=[] emulated-version=[]
feature-gates= http2-max-streams-per-connection=0 kube-api-burst=100
kube-api-content-type=application/vnd.kubernetes.protobuf kube-api-qps=50 kubeconfig= leader-elect=true
leader-elect-lease-duration=15s leader-elect-renew-deadline=10s leader-elect-resource-lock=leases
leader-elect-resource-name=kube-scheduler leader-elect-resource-namespace=kube-system leader-elect-retry-period=2s
log-flush-frequency=5s log-json-info-buffer-size=0 log-json-split-stream=false log-text-info-buffer-size=0
log-text-split-stream=false logging-format=text master= min-compatibility-version=[] permit-address-sharing=false
permit-port-sharing=false pod-max-in-unschedulable-pods-duration=5m0s profiling=true requestheader-allowed-names=[]
requestheader-client-ca-file= requestheader-extra-headers-prefix=[x-remote-extra-]
requestheader-group-headers=[x-remote-group] requestheader-uid-headers=[] requestheader-username-headers=[x-remote-user]
secure-port=10259 show-hidden-metrics-for-version= tls-cert-file= tls-cipher-suites=[] tls-curve-preferences=[]
tls-min-version= tls-private-key-file= tls-sni-cert-key=[] v=0 version=false vmodule= write-config-to=
"""
OWN = {"emulate", "hang-limit", "max-pd-vols", "plugin-timeout", "plugins", "record", "seed", "ui", "verify"}


def test_the_flags_are_kube_schedulers():
    given, _ = read_flags(FLAGS, [])
    shown = given.shown(FLAGS)
    assert {name: value for name, value in shown.items() if name not in OWN} == dict(
        word.split("=", 1) for word in UPSTREAM.split()
    )
    assert len(FLAGS) == len(shown)


def test_leader_election_flags_are_fields_of_the_configuration():
    assert LEADER_FIELDS["leader-elect"] == "leader_elect"
    assert LEADER_FIELDS["leader-elect-resource-lock"] == "resource_lock"
    assert len(LEADER_FIELDS) == 7
