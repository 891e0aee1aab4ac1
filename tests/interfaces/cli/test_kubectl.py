"""``kubectl moorage``: the current context and its namespace, kubectl's flags, and completion."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import click
import pytest

from moorage.api.documents.served_kinds import served
from moorage.basis.client.rest import Rest
from moorage.errors import InputError, MoorageError
from moorage.interfaces.cli import live_reading, terminal
from moorage.interfaces.cli.kubectl import complete, kubectl, main
from moorage.interfaces.cli.man import man_pages
from moorage.interfaces.cli.questions import explain as explain_module
from moorage.laboratory.dump import live_cache
from moorage.simulator.job_kinds import KINDS
from tests.cluster.apiserver.custom_kinds import ask, define, definition
from tests.live.server.test_embedded_start import NODES, PODS, a_scheduler, a_store, make_node, starting, until

BIN = Path(sys.executable).parent
PENDING = [("shop", "web"), ("shop", "api"), ("default", "web")]


def a_pod(name, **fields):
    wants = {"requests": {"cpu": "64"}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": wants}], **fields},
    }  # fmt: skip


@pytest.fixture
def asked(tmp_path, monkeypatch, capsys):
    """Run commands one after the other against a cluster with pods that fit nowhere; return what each says.

    A function in place of a command is called with the cluster's store; return what it returns.
    """

    async def every(commands):
        store = a_store()
        make_node(store)
        store.create(served("namespaces"), "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        for namespace, name in PENDING:
            store.create(PODS, namespace, a_pod(name))
        async with starting(store, tmp_path, a_scheduler()):
            path = tmp_path / "kubeconfig"
            await until(path.exists)
            await until(lambda: all("conditions" in store.find(PODS, *one).document()["status"] for one in PENDING))
            config = json.loads(path.read_text())
            config["contexts"][0]["context"]["namespace"] = "shop"
            path.write_text(json.dumps(config))
            monkeypatch.setenv("KUBECONFIG", str(path))
            return [command(store) if callable(command) else await asyncio.to_thread(one, command) for command in commands]

    def one(command):
        monkeypatch.setattr(sys, "argv", ["kubectl-moorage", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return lambda *commands: asyncio.run(every(commands))


def subjects(out):
    return re.findall(r"^(\S+) is pending", out, re.MULTILINE)


@pytest.mark.slow
def test_the_context_gives_cluster_and_namespace(asked, tmp_path):
    config = str(tmp_path / "kubeconfig")
    quick = ("--probes", "0")
    found = asked(
        ["explain", "web", *quick], ["explain", "web", "-n", "default", *quick], ["-n", "default", "explain", "web", *quick],
        ["explain", "--all", *quick], ["explain", "--all", "-A", *quick], ["-A", "explain", "--all", "-l", "app=web", *quick],
        ["explain", "api", "--kubeconfig", config, *quick], ["explain", "api", "-n", "default", *quick],
        ["report", "-o", "json"], ["explain", "web", "--context", "none"],
    )  # fmt: skip
    named = [subjects(out) for _, out, _ in found]
    assert named[:3] == [["shop/web"], ["default/web"], ["default/web"]]
    assert [sorted(some) for some in named[3:6]] == [
        ["shop/api", "shop/web"], ["default/web", "shop/api", "shop/web"], ["default/web", "shop/web"],
    ]  # fmt: skip
    assert named[6] == ["shop/api"]
    assert [status for status, _, _ in found] == [2] * 7 + [1, 0, 1]
    assert found[7][2] == "error: no pod or workload api among 1 pod of namespace default\n"
    assert found[9][2] == f"error: {config}: context 'none' does not exist; there are: moorage\n"


@pytest.mark.slow
def test_the_second_command_lists_no_large_collection_again(asked, tmp_path, monkeypatch):
    listed = []
    get = Rest.get

    async def counted(self, path, *given, **named):
        if "limit" in str((given, named)):
            listed.append(path)
        return await get(self, path, *given, **named)

    monkeypatch.setattr(Rest, "get", counted)
    monkeypatch.setattr(live_cache, "_LARGE", 0)
    monkeypatch.setenv("MOORAGE_CACHE_DIR", str(tmp_path / "cache"))
    words = ["explain", "--all", "-A", "--probes", "0"]
    (first, said, _), (second, again, _), (_, _, refused) = asked(words, words, ["explain", "none", "--context", "none"])
    assert (first, second) == (2, 2)
    taken = re.compile(r"^Taken from .*$", re.MULTILINE)
    assert subjects(said) == ["default/web", "shop/api", "shop/web"]
    assert taken.sub("", said) == taken.sub("", again)
    assert listed.count("/api/v1/pods") == listed.count("/api/v1/nodes") == 1
    assert "does not exist" in refused


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Keep what commands read; return a list with an entry for each cluster that was decided on."""
    runs = []
    decide = explain_module.explain_cluster
    monkeypatch.setattr(explain_module, "explain_cluster", lambda *args, **named: runs.append(1) or decide(*args, **named))
    monkeypatch.setattr(live_cache, "_LARGE", 0)
    monkeypatch.setenv("MOORAGE_CACHE_DIR", str(tmp_path / "cache"))
    return runs


def node_with(**metadata):
    """Return a change of the cluster: of the metadata of its node."""

    def change(store):
        node = store.find(NODES, "", "n1").document()
        store.update(NODES, "", "n1", {**node, "metadata": {**node["metadata"], **metadata}})

    return change


@pytest.mark.slow
def test_an_answer_is_given_again_while_nothing_changes(asked, counted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, project = ["explain", "web"], tmp_path / ".moorage.yaml"
    wide, documents, later = [*words, "-o", "wide"], [*words, "-o", "json"], [*words, "--emulate", "1.35"]
    steps = {  # a command or a change → whether the cluster is decided on
        "first": (words, True), "again": (words, False), "another pod": (["explain", "api"], True), "still": (words, False),
        "another form": (wide, True), "that again": (wide, False), "documents": (documents, True),
        "those again": (documents, True),
        "an annotation": (node_with(annotations={"example.com/note": "x"}), False), "nothing that is read": (words, False),
        "a label": (node_with(labels={"pool": "a"}), False), "changed": (words, True), "changed, again": (words, False),
        "costs": (lambda store: project.write_text("costs: {}"), False), "with costs": (words, True),
        "an option that is not plain": (later, True), "that option again": (later, True),
    }  # fmt: skip
    said = asked(*(one for step, _ in steps.values() for one in (step, lambda store: len(counted))))
    numbers = [0, *said[1::2]]
    assert {name: now > then for name, then, now in zip(steps, numbers, numbers[1:], strict=False)} == {
        name: decides for name, (_, decides) in steps.items()
    }
    found = {name: one for name, one in zip(steps, said[::2], strict=True) if isinstance(one, tuple)}
    assert {status for status, _, _ in found.values()} == {2}
    taken = re.compile(r"^Taken from .*$", re.MULTILINE)
    for one, other in (
        ("first", "again"), ("first", "nothing that is read"), ("another form", "that again"), ("changed", "changed, again"),
    ):  # fmt: skip
        assert taken.sub("", found[one][1]) == taken.sub("", found[other][1])
    assert all(taken.search(out) for name, (_, out, _) in found.items() if name not in {"documents", "those again"})


def any_change(rng):
    """Return a change of the cluster, which scheduling may read or not."""
    pod, value = a_pod(f"p{rng.randrange(4)}"), str(rng.randrange(3))

    def change(store):
        if rng.random() < 0.3:
            node_with(**{rng.choice(["annotations", "labels"]): {"example.com/x": value}})(store)
        elif store.find(PODS, "shop", pod["metadata"]["name"]) is None:
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = rng.choice(["1", "3", "64"])
            store.create(PODS, "shop", pod)
        else:
            store.delete(PODS, "shop", pod["metadata"]["name"])

    return change


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_answers_equal_those_of_commands_that_keep_nothing(form, asked, counted, tmp_path, monkeypatch):
    rng = random.Random(3)
    words = ["explain", "--all", "-A", "-o", form]
    keep, keep_not = (
        lambda store, folder=folder: monkeypatch.setenv("MOORAGE_CACHE_DIR", folder) for folder in (str(tmp_path / "cache"), "")
    )
    said = asked(*(one for _ in range(5) for one in (any_change(rng), keep, words, words, keep_not, words)))
    taken = re.compile(r"^Taken from .*$|\"taken from [^\"]*\"|\"takenAt\": .*$", re.MULTILINE)
    texts = [taken.sub("", out) for one in said if isinstance(one, tuple) for out in one[1:2]]
    assert texts[::3] == texts[1::3] == texts[2::3]
    assert len(set(texts)) > 2
    assert (
        form == "json" or 5 < len(counted) < 15
    )  # always those that keep nothing, and some of the others: the scheduler changes pods, too


@pytest.mark.slow
def test_what_was_kept_damaged_is_read_again(asked, counted):
    def damage(store):
        (path,) = Path(os.environ["MOORAGE_CACHE_DIR"]).glob("*.objects")
        _, kept = live_cache._read(path)
        for one in kept.collections.values():
            one.objects = b"\x93\x01"
        live_cache._write(path, kept)

    (first, said, _), _, (second, again, errors), (third, _, _) = asked(
        ["explain", "web"], damage, ["explain", "api"], ["explain", "api"]
    )
    assert (first, second, third, errors) == (2, 2, 2, "")
    assert (subjects(said), subjects(again)) == (["shop/web"], ["shop/api"])


def completed(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-moorage", *words])
    complete()
    *offered, directive = capsys.readouterr().out.splitlines()
    return [one.partition("\t") for one in offered], directive


COMPLETIONS = {  # words, one of the offers, what the shell may add
    "a command": (["expl"], ("explain", "\t", "Say why a pod is pending, or why it is on its node."), ":4"),
    "an option": (["explain", "--names"], ("--namespace", "\t", "The namespace of the pods or workloads."), ":4"),
    "a choice": (["explain", "-o", "ht"], ("html", "", ""), ":4"),
    "an option before the command": (["--conte"], ("--context", "\t", "The context of the kubeconfig."), ":4"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "offer", "directive"), COMPLETIONS.values(), ids=COMPLETIONS)
def test_completion(monkeypatch, capsys, words, offer, directive):
    assert completed(monkeypatch, capsys, *words) == ([offer], directive)


def test_nothing_is_offered_after_a_command_that_does_not_exist(monkeypatch, capsys):
    assert all(not value.startswith("--pending") for value, *_ in completed(monkeypatch, capsys, "exp", "--pen")[0])
    assert completed(monkeypatch, capsys, "exp", "")[1] in {":0", ":4"}


def test_commands_that_need_no_cluster_are_not_offered(monkeypatch, capsys):
    offered, _ = completed(monkeypatch, capsys, "")
    names = {name for name, _, _ in offered}
    assert {"explain", "drain", "dump"} <= names
    assert names.isdisjoint({"run", "up", "demo", "completion"})
    context = click.Context(kubectl)
    assert kubectl.get_command(context, "run") is None


@pytest.mark.slow
def test_kubectl_finds_the_plugin():
    if shutil.which("kubectl") is None or not (BIN / "kubectl-moorage").exists():
        pytest.skip("needs kubectl, and Moorage installed with its scripts")
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def run(*words):
        return subprocess.run(["kubectl", *words], env=env, capture_output=True, text=True, check=False).stdout

    assert run("moorage", "--help").startswith("Usage: kubectl moorage [OPTIONS] COMMAND")
    assert run("__complete", "moorage", "explai").splitlines() == [
        "explain\tSay why a pod is pending, or why it is on its node.", ":4",
    ]  # fmt: skip


EARLY = {  # the words → the kubeconfig and the context that are read while the command is loaded; None: nothing is
    "the current context": (["explain", "web"], (None, None)),
    "options before the command": (["--context", "a", "--kubeconfig=f", "explain", "web"], ("f", "a")),
    "options after it": (["--context=a", "explain", "web", "--context", "b", "--kubeconfig", "f", "-n", "shop"], ("f", "b")),
    "a job": (["explain", "--kubeconfig", "a/f", "job/a", "-n", "shop"], ("a/f", None, KINDS, False)),
    "a job among options": (["explain", "-o", "wide", "job/shop/a", "--context=a"], (None, "a", KINDS, False)),
    "a pod with its namespace": (["explain", "shop/web"], (None, None)),
    "an option without a value": (["report", "--context"], (None, None)),
    "a help page": (["explain", "--help"], None),
    "a configuration, whose plugins may read other kinds": (["explain", "web", "--config=f"], None),
    "plugins": (["explain", "web", "--plugins", "p:P"], None),
    "a command that reads no cluster": (["help", "explain"], None),
    "no such command": (["explian", "web"], None),
}  # fmt: skip


@pytest.mark.parametrize(("words", "read"), EARLY.values(), ids=EARLY)
def test_the_cluster_is_read_while_the_command_is_loaded(words, read, monkeypatch):
    begun = []

    def begin(source, words):
        begun.append(source)
        nothing = live_reading.BegunReading(words)
        nothing.known.set_result(None)
        return nothing

    monkeypatch.setattr(live_reading, "begin_reading", begin)
    monkeypatch.setenv("KUBECONFIG", "none")
    with suppress(click.ClickException, click.exceptions.Exit, MoorageError):
        kubectl.main(words, standalone_mode=False)
    assert begun == ([] if read is None else [live_reading.ClusterToRead(*read)])


@pytest.mark.parametrize("option", ["--progress", "--quiet"])
def test_a_line_says_that_an_answer_waits_for_the_cluster(option, monkeypatch, capsys):
    def begin(source, words):
        slow = live_reading.BegunReading(words)
        threading.Timer(0.1, slow.known.set_result, [("as before\n", 2)]).start()
        return slow

    monkeypatch.setattr(live_reading, "begin_reading", begin)
    monkeypatch.setattr(terminal, "_PATIENCE_S", 0)
    monkeypatch.setattr(terminal, "_LINE_S", 0.01)
    with suppress(click.exceptions.Exit):
        kubectl.main(["explain", "web", option], standalone_mode=False)
    out, err = capsys.readouterr()
    assert (out, "reading the live cluster" in err) == ("as before\n", option == "--progress")


def test_a_command_that_names_a_job_keeps_its_short_option_for_help(monkeypatch):
    monkeypatch.setattr(explain_module.explain, "_help_option", None)  # click keeps it, with the names of the first context

    def refuse(source, words):
        raise InputError("no cluster")

    monkeypatch.setattr(live_reading, "begin_reading", refuse)
    with suppress(InputError):
        kubectl.main(["explain", "job/a"], standalone_mode=False)
    assert r"\-h, \-\-help" in dict(man_pages())["moorage-explain"]


def test_what_fails_in_the_thread_fails_in_the_command(tmp_path):
    source = live_reading.ClusterToRead(str(tmp_path / "none"), None)
    live_reading.begin_reading(source)
    for _ in range(2):  # what was begun, and what is read now
        with pytest.raises(InputError, match="no such file"):
            live_reading.read_live(source)


def test_a_report_shows_the_queues_of_a_cluster_that_has_them(asked):
    version = "kueue.x-k8s.io/v1beta2"

    def install(store):
        for plural, kind in (("clusterqueues", "ClusterQueue"), ("resourceflavors", "ResourceFlavor")):
            made = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
            made["metadata"]["name"] = f"{plural}.kueue.x-k8s.io"
            versions = [
                {**made["spec"]["versions"][0], "name": name, "storage": name == "v1beta2"} for name in ("v1beta1", "v1beta2")
            ]
            names = {"plural": plural, "kind": kind}
            made["spec"] |= {"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "versions": versions}
            define(store, made)
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "8"}]}
        spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
        for plural, kind, given in (("clusterqueues", "ClusterQueue", spec), ("resourceflavors", "ResourceFlavor", {})):
            body = {"apiVersion": version, "kind": kind, "metadata": {"name": "default"}, "spec": given}
            assert ask(store, "POST", f"/apis/{version}/{plural}", body)[0] == 201

    (_, before, _), _, (code, out, err) = asked(["report"], install, ["report"])
    assert "CLUSTERQUEUE" not in before
    assert (code, err) == (0, "")
    assert re.search(r"CLUSTERQUEUE +COHORT.*\ndefault +- +default +cpu +8 ", out)
