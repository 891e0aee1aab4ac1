"""Whatever stands in the input, no output of the program steers the terminal or forges a line: every command, every place."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

import moorage as library
from moorage.errors import MoorageError
from moorage.interfaces.cli.terminal import EscapingStream, bare, guard, unguard
from tests.interfaces.cli.hostile import EVIL, check_harmless, misleads, places

ROOT = Path(__file__).resolve().parents[3]


def check_ran(ran):
    assert ran.status in {0, 1, 2}
    assert "Traceback" not in ran.err
    check_harmless(ran.out, ran.err)


def test_the_check_sees_what_it_is_for():
    for part in ("\x1b", "\a", "\x9b", "\u202e", "\u200b", "\u2028", "\r", "\ud800", "\u3164"):
        with pytest.raises(AssertionError):
            check_harmless(f"a{part}b")
    with pytest.raises(AssertionError):
        check_harmless("error: a\nFORGED: b")
    assert sum(map(misleads, EVIL)) == 15


# -- clusters -----------------------------------------------------------------------------------------------------------

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "labels": {"app": "a"},
        "annotations": {"note": "x"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}],
    },
    "spec": {
        "schedulerName": "other",
        "priorityClassName": "high",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "d", "resourceClaimName": "d"}],
        "schedulingGates": [{"name": "example.com/gate"}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}},
                "ports": [{"name": "p", "hostPort": 80, "containerPort": 80, "protocol": "TCP"}],
            }
        ],
    },
    "status": {"nominatedNodeName": "n1", "phase": "Pending"},
}
OTHERS = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "providerID": "x"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9", "example.com/gpu": "1"}},
    },
    {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "ns"}, "spec": {"a": "b"}},
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"storageClassName": "s", "volumeName": "", "resources": {"requests": {"storage": "1Gi"}}},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "w"}},
            "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    },
]
BARE = {**POD, "spec": {"containers": POD["spec"]["containers"]}}
CLUSTERS = dict(places([POD, BARE, *OTHERS]))
FORMS = ["table", "wide", "json", "yaml"]


def written(folder, documents):
    path = folder / "cluster.json"
    path.write_text("\n".join(json.dumps(one) for one in documents))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("form", range(4), ids=FORMS)
def test_simulate(moorage, tmp_path, form):
    # A place is tried with one form of output: there are hundreds of both.
    for documents in list(CLUSTERS.values())[form::8]:
        more = ["--events", "--show-scores", "ns/p", "--timing"] if form % 2 else ["--show-scores", EVIL]
        check_ran(moorage("simulate", "-f", written(tmp_path, documents), "-o", FORMS[form], *more))


@pytest.mark.slow
def test_errors_of_the_library(tmp_path):
    refused = 0
    for number, documents in enumerate(CLUSTERS.values()):
        for validated in (True, False)[number % 2 :]:
            try:
                cluster = library.read([written(tmp_path, documents)], validated=validated)
            except MoorageError as error:
                refused += 1
                check_harmless(str(error))
            else:
                check_harmless(*cluster.report.lines())
                assert not any("\n" in line for line in cluster.report.lines())
    assert refused > 50


@pytest.mark.slow
def test_up_starts_with_what_can_be_read(moorage, tmp_path):
    for at, documents in enumerate(list(CLUSTERS.values())[::60]):
        path = written(tmp_path, documents)
        ran = moorage("up", "-f", path, "--home", tmp_path / f"home{at}", "--port", "0", "--for", "0")
        assert ran.status in {0, 1}
        check_ran(ran)


def test_yaml_of_any_kind(moorage, tmp_path):
    texts = {
        "no object": EVIL, "a tag": f"!{EVIL} x", "an anchor": f"&{EVIL} x", "a key": json.dumps({EVIL: 1}),
        "a key twice": '{"apiVersion":"v1","kind":"Pod",' + f"{json.dumps(EVIL)}:1,{json.dumps(EVIL)}:2}}",
        "a comment": f"# {EVIL}\n{{", "a directive": f"%{EVIL}\n---\n",
    }  # fmt: skip
    for text in texts.values():
        path = tmp_path / "in.yaml"
        path.write_text(text, encoding="utf-8", newline="")
        check_ran(moorage("simulate", "-f", path))
        check_ran(moorage("config", "show", path))


# -- configurations -----------------------------------------------------------------------------------------------------

CONFIGURATIONS = {
    "v1": {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/nowhere"},
        "leaderElection": {"resourceName": "n", "leaseDuration": "15s"},
        "extenders": [{"urlPrefix": "http://x/", "filterVerb": "f", "managedResources": [{"name": "example.com/a"}]}],
        "profiles": [
            {
                "schedulerName": "packed",
                "plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 2}], "disabled": [{"name": "*"}]}},
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
                    }
                ],
            }
        ],
    },
    "v1beta1": {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "old",
                "plugins": {"filter": {"enabled": [{"name": "NodeLabel"}]}},
                "pluginConfig": [{"name": "NodeLabel", "args": {"presentLabels": ["a"]}}],
            }
        ],
    },
    "a Policy": {
        "apiVersion": "v1",
        "kind": "Policy",
        "predicates": [{"name": "NoRetired", "argument": {"labelsPresence": {"labels": ["retired"], "presence": False}}}],
        "priorities": [{"name": "Fast", "weight": 2, "argument": {"labelPreference": {"label": "ssd", "presence": True}}}],
        "extenders": [{"urlPrefix": "http://x/", "filterVerb": "f"}],
    },
}
COMMANDS = [
    ["config", "validate"], ["config", "show"], ["config", "show", "-o", "json"], ["config", "show", "-o", "yaml"],
    ["config", "convert"],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations(moorage, tmp_path, name):
    for number, (_, document) in enumerate(places(CONFIGURATIONS[name])):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(document))
        command = COMMANDS[number % len(COMMANDS)]
        ran = moorage(*command, path)
        check_ran(ran)
        if ran.status == 0 and "json" in command:
            json.loads(ran.out)
        if ran.status == 0 and ran.out.startswith("#"):
            yaml.safe_load(ran.out)
        if number % 9 == 0:
            check_ran(moorage("run", "--config", path, "--write-config-to", tmp_path / "written", "-v=2"))


def test_documents_keep_the_text_of_the_input(moorage, tmp_path):
    document = CONFIGURATIONS["v1"]
    document = {**document, "profiles": [{**document["profiles"][0], "schedulerName": EVIL}]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    assert json.loads(moorage("config", "show", "-o", "json", path).out)["profiles"][0]["schedulerName"] == EVIL
    assert yaml.safe_load(moorage("config", "show", "-o", "yaml", path).out)["profiles"][0]["schedulerName"] == EVIL


# -- kubeconfigs, flags and the names of files ------------------------------------------------------------------------------

KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "tls-server-name": "x", "proxy-url": "http://p:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
    "users": [
        {
            "name": "u",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1", "command": "nothing", "args": ["a"],
                    "interactiveMode": "Never", "env": [{"name": "A", "value": "b"}], "installHint": "get it",
                },
                "as": "me", "as-groups": ["g"], "as-user-extra": {"k": ["v"]},
            },
        },
    ],
}  # fmt: skip
FILES = [{"tokenFile": "t"}, {"token": "t"}, {"client-certificate": "a", "client-key": "b"}, {"auth-provider": {"name": "x"}}]


@pytest.mark.slow
def test_run_refuses_a_kubeconfig(moorage, tmp_path):
    others = [{**KUBECONFIG, "users": [{"name": "u", "user": user}]} for user in FILES]
    changed = [document for base in (KUBECONFIG, *others) for _, document in places(base)]
    for number, document in enumerate(changed[::3]):
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document))
        path.chmod(0o644)  # which is warned of
        form = ("text", "json")[number % 2]
        ran = moorage("run", "--kubeconfig", path, f"--logging-format={form}", f"--tls-cert-file={EVIL}")
        assert ran.status == 1
        check_ran(ran)


def flags_of(command):
    """Return the options of a command that take a value."""
    from moorage.interfaces.cli.main import cli

    found = cli.get_command(None, command)
    if command == "run":
        return [f"--{flag.name}" for flag in found.flags if flag.kind != "bool"]
    return [one.opts[0] for one in found.params if not one.is_flag and one.opts[0].startswith("-")]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["simulate", "up", "run"])
def test_flags(moorage, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    flags = flags_of(command)
    assert len(flags) > 10
    for flag in flags:
        # Something else is wrong as well, so that no scheduler and no cluster starts.
        also = {"simulate": [], "up": ["-f", EVIL, "--for", "0"], "run": ["--tls-cert-file", EVIL, "--kubeconfig", "/x"]}[
            command
        ]
        ran = moorage(command, *also, flag, EVIL)
        assert ran.status == 1
        check_ran(ran)
    check_ran(moorage(command, f"--{EVIL}"))
    check_ran(moorage(command, EVIL))
    check_ran(moorage(EVIL))


NAMES = [EVIL.replace("/", "_"), "\udcff\udcfe", "\x1b[2J"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_files(moorage, tmp_path, cluster, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "a.yaml").write_text(cluster)
    (folder / f"{name}.txt").write_text("")
    (folder / name).symlink_to(folder, target_is_directory=True)
    for form in FORMS:
        check_ran(moorage("simulate", "-f", folder, "-R", "-o", form))
    (folder / f"{name}.yaml").write_text("{")
    for args in (
        ["-f", folder],
        ["-f", folder / "nothing"],
        ["--config", folder],
        ["--trace", "openb", "--nodes", folder, "--pods", folder],
    ):
        check_ran(moorage("simulate", *args))
    for args in (["validate"], ["show"], ["convert"]):
        check_ran(moorage("config", *args, folder / f"{name}.yaml"))
        check_ran(moorage("config", *args, folder / "nothing"))
    (folder / "good").write_text(json.dumps(CONFIGURATIONS["v1"]))
    check_ran(moorage("config", "validate", folder / "good"))
    check_ran(moorage("run", "--config", folder / "good", "--write-config-to", folder / "written"))
    check_ran(moorage("run", "--config", folder / "good", "--write-config-to", folder / "no" / "such"))


def test_an_up_that_starts_shows_its_paths_in_lines(moorage, tmp_path):
    home = tmp_path / EVIL.replace("/", "_")
    ran = moorage("up", "--nodes", "0", "--no-scheduler", "--controllers=namespace-controller", "--home", home, "--for", "0")
    assert ran.status == 0
    check_ran(ran)


# -- traces -------------------------------------------------------------------------------------------------------------


def test_traces(moorage, tmp_path):
    files = {}
    for kind in ("nodes", "pods"):
        text = (ROOT / f"examples/trace-openb/{kind}.csv").read_text()
        files[kind] = [line.split(",") for line in text.splitlines()[:3]]
    tried = 0
    for kind, rows in files.items():
        for column in range(len(rows[0])):
            for row in range(2):
                changed = [list(one) for one in rows]
                changed[row][column] = '"' + EVIL.replace('"', "") + '"'
                paths = {name: tmp_path / f"{name}.csv" for name in files}
                for name, path in paths.items():
                    lines = changed if name == kind else files[name]
                    path.write_text("\n".join(",".join(line) for line in lines) + "\n", encoding="utf-8", newline="")
                form = FORMS[tried % 4]
                tried += 1
                given = ["--nodes", paths["nodes"], "--pods", paths["pods"], "--events", "-o", form]
                check_ran(moorage("simulate", "--trace", "openb", *given))
    assert tried > 20


# -- plugins ------------------------------------------------------------------------------------------------------------

PLUGIN = """
from moorage.framework.verdicts import Hold

EVIL = {evil!r}


class {name}:
    name = "{name}"

    def permit(self, state, pod, node):
        return None

    def {method}(self, {arguments}):
        {body}
"""
#: Whose words are not shown in each form, or go to pytest's own log.
QUIET = ("gates", "logs")
PLUGINS = {  # a method, its arguments, what it does, the exit status
    "raises": ("filter_node", "state, node", "raise ValueError(EVIL)", 2),
    "refuses": ("filter_node", "state, node", "return Hold((EVIL,))", 2),
    "refuses at first": ("pre_filter", "pod, snapshot", "return Hold((EVIL,))", 2),
    "gates": ("pre_enqueue", "pod", "return Hold((EVIL,))", 2),
    "answers text": ("score_node", "state, node", "return EVIL", 2),
    "raises in score": ("score_node", "state, node", "raise RuntimeError(EVIL)", 2),
    "raises at reserve": ("reserve", "state, pod, node", "raise RuntimeError(EVIL)", 2),
    "cannot be built": ("__init__", "", "raise ValueError(EVIL)", 1),
    "wakes on text": ("wakes_on", "", "return [EVIL]", 1),
    "prints": ("filter_node", "state, node", "print(EVIL)", 0),
    "logs": ("filter_node", "state, node", "import logging; logging.warning(EVIL)", 0),
}


@pytest.mark.parametrize("case", PLUGINS)
def test_plugins(moorage, tmp_path, monkeypatch, cluster, case):
    method, arguments, body, status = PLUGINS[case]
    name = "Hostile" + case.title().replace(" ", "")
    # What a plugin prints by itself may have lines, but nothing that steers the terminal.
    evil = EVIL.replace("\n", "") if status == 0 else EVIL
    (tmp_path / f"{name.lower()}.py").write_text(
        PLUGIN.format(evil=evil, name=name, method=method, arguments=arguments, body=body)
    )
    (tmp_path / "cluster.yaml").write_text(cluster)
    monkeypatch.syspath_prepend(tmp_path)
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": name}]}}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(document))
    given = ["--config", tmp_path / "config.json", "--plugins", f"{name.lower()}:{name}", "--events"]
    for form in FORMS:
        ran = moorage("simulate", "-f", tmp_path / "cluster.yaml", *given, "-o", form, "--show-scores", "p1")
        check_ran(ran)
        assert ran.status == status
        assert re.search(r"\\x1b|\\u001b|\\e", ran.out + ran.err) or case in QUIET  # it was quoted somewhere


BROKEN = {
    "raises": f"raise ValueError({EVIL!r})", "ends": f"raise SystemExit({EVIL!r})", "is no Python": "x =",
    "has such a name": f"class A:\n    name = {EVIL!r}",
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_plugins_that_cannot_be_loaded(moorage, tmp_path, monkeypatch, cluster, text):
    (tmp_path / "hostile_broken.py").write_text(text)
    (tmp_path / "cluster.yaml").write_text(cluster)
    monkeypatch.syspath_prepend(tmp_path)
    for reference in ("hostile_broken:A", f"hostile_broken:{EVIL}", f"{EVIL}:A", EVIL):
        for command in (["simulate", "-f", tmp_path / "cluster.yaml"], ["config", "show"], ["run"], ["up", "--home", tmp_path]):
            sys.modules.pop("hostile_broken", None)
            ran = moorage(*command, "--plugins", reference)
            assert ran.status == 1
            check_ran(ran)


# -- the guard ----------------------------------------------------------------------------------------------------------


def test_output_of_other_code_is_escaped(capsys):
    guard()
    try:
        print("\x1b[2J", file=sys.stdout)
        sys.stderr.writelines(["a\x9b", "\n"])
        bare(sys.stderr).write("\r\x1b[K")
        with pytest.raises(TypeError):
            sys.stdout.write(b"")
    finally:
        unguard()
    assert capsys.readouterr() == ("\\x1b[2J\n", "a\\x9b\n\r\x1b[K")


def test_a_terminal_of_few_characters_gets_escapes():
    raw = io.BytesIO()
    stream = EscapingStream(io.TextIOWrapper(raw, encoding="ascii"))
    stream.write("1µs …\n")
    stream.flush()
    assert raw.getvalue() == b"1\\xb5s \\u2026\n"


@pytest.mark.slow
def test_a_process_escapes_its_output_on_any_terminal(process, tmp_path):
    ran = process("simulate", "-f", tmp_path / EVIL.replace("/", "_"), PYTHONIOENCODING="ascii")
    assert ran.status == 1
    check_harmless(ran.err)
