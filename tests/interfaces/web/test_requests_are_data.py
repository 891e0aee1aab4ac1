"""Values of a request are data: no argument of a question or a tool makes the server open a file, a pipe or a connection."""

import itertools
import json
import os
import random
from contextlib import suppress

import pytest
import yaml

from moorage.api.documents.statuses import ApiError
from moorage.errors import InputError
from moorage.interfaces.cli import cluster_files
from moorage.interfaces.cli.main import main
from moorage.interfaces.mcp.answers import _arguments
from moorage.interfaces.questions.question_tables import question_table, sent_fields, tool_parameters, tools
from moorage.interfaces.web.question_arguments import QuestionBody, arguments_of
from tests.watched_opens import WORD, hostile_names, marks_of, watching

#: A question of each kind that is answered.
BASES = {
    "explain": {"explain": "web"},
    "capacity": {"capacity": "pod/web"},
    "plan": {"plan": [], "types": [{"name": "t", "like": "n1"}]},
    "drain": {"drain": ["n1"]},
    "cordon": {"cordon": ["n1"]},
    "fail": {"fail": ["n1"]},
    "survive": {"survive": "node"},
    "compare": {"compare": {"aRelease": "1.35"}},
    "check": {"check": {"apiVersion": "moorage.dev/v1", "kind": "CheckPolicy", "rules": [{"noPending": {}}]}},
    "deschedule": {"deschedule": {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": []}},
    "rightsize": {"rightsize": "NAMESPACE NAME CPU(cores) MEMORY(bytes)\ndefault web 1m 1Mi\n"},
    "simulate": {"simulate": {}},
    "sweep": {"sweep": {"releases": ["1.35"], "seeds": 1}},
    "config": {"configuration": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}},
    "report": {"report": {}},
}
#: Fields of a grid that name files and code of the command line.
NEVER_SENT = {"sweep": ["clusters", "traces", "queues", "plugins"]}


@pytest.fixture
def hostile(tmp_path):
    return hostile_names(tmp_path)


def shapes(field, value):
    """Return values of a field in the forms in which a request could hide a name."""
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": value}
    policy = {**BASES["check"]["check"], "types": value, "rules": [{"cost": {"atMost": "+5%"}}]}
    listed = [{"name": "t", "node": value, "price": 1}]
    return [
        value, [value], {value: 1}, {"x": value}, {"x": [value]}, listed, yaml.safe_dump(listed), manifest, policy,
        yaml.safe_dump(policy), {**policy, "types": listed}, f"kind: {value}\n", [{"name": "t", "like": value}],
    ]  # fmt: skip


def asked(command):
    return question_table("config-show" if command == "config" else command)["asked"]


def fields_of(command):
    sent = sent_fields("config-show" if command == "config" else command)
    own = [*asked(command)["fields"], *(one.name for one in sent), *NEVER_SENT.get(command, ())]
    return [*own, "changes", "timeLimitSeconds", "kubeconfig"]


def questions(hostile):
    """Yield every question with each of its fields replaced by hostile values, in all shapes; some of them by their turn."""
    turn = random.Random(os.environ.get("MOORAGE_SEED", "requests"))
    for command, base in BASES.items():
        inside = asked(command).get("inside")
        for field in dict.fromkeys(fields_of(command)):
            for shape in range(13):
                value = shapes(field, hostile[turn.choice(list(hostile))])[shape]
                if inside and field not in {inside, "changes"}:
                    yield command, {inside: {**base[inside], field: value}}
                else:
                    yield command, {**base, field: value}


def answer(words, files, folder, capfd, monkeypatch):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    monkeypatch.chdir(folder)
    with suppress(SystemExit):
        main([*words])
    captured = capfd.readouterr()
    return captured.out + captured.err


def input_words(command, cluster):
    return [] if command == "config" else ["-f", str(cluster), "--extenders=skip"]


@pytest.fixture
def cluster(tmp_path):
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }  # fmt: skip
    one = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }  # fmt: skip
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, one]}))
    return path


@pytest.mark.slow
def test_no_argument_of_a_question_names_a_file(hostile, cluster, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cluster_files, "_answers_a_request", True)
    answered, refused, bad = 0, 0, []
    for number, (_, question) in enumerate(questions(hostile)):
        try:
            arguments = arguments_of(QuestionBody(question))
        except ApiError:
            refused += 1
            continue
        except (TypeError, AttributeError) as error:
            bad.append((question, repr(error)))
            continue
        name, *rest = arguments.words
        words = ("config", "show", "-o", "json", *rest) if name == "config" else (name, *input_words(name, cluster), *rest)
        with watching(*marks_of(tmp_path)) as seen:
            text = answer(words, arguments.files, tmp_path / f"question-{number}", capfd, monkeypatch)
        answered += 1
        if seen or WORD in text:
            bad.append((question, seen, text[:300]))
    assert not bad, bad[:3]
    assert answered > 100
    assert refused > 100


@pytest.mark.slow
def test_no_argument_of_a_tool_names_a_file(hostile, cluster, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cluster_files, "_answers_a_request", True)
    number = itertools.count()
    for tool, command, row in tools():
        inside = asked(command).get("inside")
        for parameter, field, type_ in [
            *((one.name, one.field, one.type) for one in tool_parameters(command)),
            ("changes", "", ""),
        ]:
            for value in hostile.values():
                fields = {**({row["main"]: []} if "main" in row else {}), **row.get("always", {})}
                if parameter != "changes":
                    fields[field] = [{"name": "t", "node": value}] if type_ == "objects" else value
                question = {inside: fields} if inside else fields
                try:
                    arguments = _arguments(question, [value] if parameter == "changes" else ())
                except InputError:
                    continue
                words = (arguments.words[0], *input_words(command, cluster), *arguments.words[1:])
                with watching(*marks_of(tmp_path)) as seen:
                    text = answer(words, arguments.files, tmp_path / f"tool-{next(number)}", capfd, monkeypatch)
                assert not seen, (tool, parameter, value)
                assert WORD not in text, (tool, parameter, value)


@pytest.mark.parametrize("value", ["/etc/hostname", "word.yaml", "./x"])
def test_types_of_a_policy_that_came_with_a_request_are_data(value, monkeypatch):
    monkeypatch.setattr(cluster_files, "_answers_a_request", True)
    with pytest.raises(InputError, match="names no file of the server"):
        cluster_files.file_named_in("policy.yaml", value, "types")
