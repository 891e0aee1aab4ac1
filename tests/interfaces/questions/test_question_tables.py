"""Each question has one table: commands, requests of browsers, tools of agents and methods of programs agree with its table."""

import inspect

import click
import pytest

from moorage.api.durations import parse_duration
from moorage.interfaces.cli.option_tables import parameters_of
from moorage.interfaces.questions.question_tables import (
    NAMES,
    option_of,
    question_table,
    rows_of,
    sent_fields,
    tool_parameters,
    tools,
)
from moorage.interfaces.web.question_arguments import QuestionBody, arguments_of
from moorage.laboratory.cluster import Cluster

#: Kind of a field → a value that it takes.
VALUES = {"text": "first", "texts": ["n1"], "flag": True, "integer": 1, "number": 1}
#: Fields that code reads → a value that they take.
READ = {
    "explain": "pod/web", "pods": "pod/web", "all": True, "byCause": True, "capacity": "pod/web", "template": "kind: Pod",
    "numbers": {"pod/web": 2}, "quota": False, "gains": False, "plan": ["t"], "types": [{"name": "t"}],
    "flags": {"force": True}, "fail": ["n1"], "zone": "a", "a": "kind: x", "b": "kind: x", "pools": "a: 1",
    "autoscaler": "karpenter", "instanceTypes": [], "spotInterruptions": 1.0, "configs": {"a": "kind: x"},
    "releases": ["1.35"], "parameters": {"x": [1]}, "seeds": 1, "replaceAll": True, "metrics": ["pending"],
    "against": "seed=1", "allNodes": True, "prices": {"t": 1},
}  # fmt: skip


#: The field that says which question it is → a value that it takes, if that is no list of names.
START = {
    "explain": "pod/web", "capacity": "pod/web", "survive": "node", "check": "a: 1", "deschedule": "a: 1", "rightsize": "a",
    "configuration": "a: 1",
}  # fmt: skip
#: Fields that stand beside another one.
TOGETHER = {"instanceTypes": {"autoscaler": "karpenter"}, "spotInterruptions": {"autoscaler": "karpenter"}}


def options(name):
    command = click.Command("x", params=parameters_of(name))
    return {option for one in command.params for option in [*one.opts, *one.secondary_opts]}


@pytest.mark.parametrize("name", NAMES)
def test_each_field_of_a_question_is_an_option_of_its_command(name):
    about = question_table(name)["asked"]
    inside = about.get("inside")
    first = about["fields"][0]
    start = {} if inside else {first: START.get(first, ["n1"])}
    for field in sent_fields(name):
        value = READ[field.name] if field.by_code else START.get(field.name, VALUES[field.type])
        fields = {**start, **TOGETHER.get(field.name, {}), field.name: value}
        words = arguments_of(QuestionBody({inside: fields} if inside else fields)).words
        given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
        assert given <= options(name), field
        assert field.by_code or not field.option or field.option in given, field


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_the_table_does_not_have_is_refused(name):
    about = question_table(name)["asked"]
    inside, first = about.get("inside"), about["fields"][0]
    wrong = {inside: {"nope": 1}} if inside else {first: START.get(first, ["n1"]), "nope": 1}
    with pytest.raises(Exception, match="unknown fields: 'nope'"):
        arguments_of(QuestionBody(wrong))


@pytest.mark.parametrize("name", NAMES)
def test_bounds_of_what_is_sent_are_within_those_of_the_option(name):
    rows = {option_of(parameter, row): row for parameter, row in rows_of(question_table(name)) if "field" in row}
    for field in sent_fields(name):
        if field.type in {"integer", "number"} and not field.by_code:
            row = rows[field.option]
            assert row.get("least", field.least) <= field.least <= field.most, field
            assert field.most <= row.get("most", field.most), field


def test_each_parameter_of_a_tool_is_a_field_of_its_question():
    for _, question, about in tools():
        known = {one.name for one in sent_fields(question)}
        own = tool_parameters(question)
        assert {one.field for one in own} <= known, question
        assert {*about.get("needs", ())} <= {one.name for one in own}, question


#: Question → the methods of `moorage.Cluster` that ask it.
METHODS = {
    "explain": [Cluster.explain, Cluster.least_change], "report": [Cluster.overview], "capacity": [Cluster.capacity],
    "plan": [Cluster.plan, Cluster.consolidate], "drain": [Cluster.drain], "cordon": [Cluster.cordon], "fail": [Cluster.fail],
    "survive": [Cluster.survive],
}  # fmt: skip
#: What programs alone can give: clocks and what runs work, and limits that all commands have.
OF_PROGRAMS = {"self", "clock", "executor", "on_loss", "now_s", "time_limit_s", "quota"}
#: Parameters of a method without an option: the command takes the time of a drain.
WITHOUT_OPTION = {"plan": {"ready_after_s"}}
#: A program says of which unit its prices are, or leaves it out.
OTHER_DEFAULTS = {"unit": ""}


def of_program(parameter, row):
    return row.get("python", parameter)


@pytest.mark.parametrize("name", METHODS)
def test_programs_have_the_parameters_of_the_table(name):
    rows = dict(rows_of(question_table(name)))
    known = {of_program(parameter, row): row for parameter, row in rows.items()}
    given = {one for method in METHODS[name] for one in inspect.signature(method).parameters}
    assert given - OF_PROGRAMS - WITHOUT_OPTION.get(name, set()) <= known.keys()
    sent = {of_program(parameter, row) for parameter, row in rows.items() if "field" in row}
    assert {one for one in sent - given if one} == set()


@pytest.mark.parametrize("name", METHODS)
def test_programs_have_the_defaults_of_the_table(name):
    known = {of_program(parameter, row): row for parameter, row in rows_of(question_table(name))}
    wrong = []
    for method in METHODS[name]:
        for parameter, about in inspect.signature(method).parameters.items():
            default = about.default
            if default is inspect.Parameter.empty or "default" not in known.get(parameter, {}) or parameter == "seeds":
                continue
            shown = OTHER_DEFAULTS.get(parameter, known[parameter]["default"])
            seconds = parse_duration(shown) / 1e9 if parameter.endswith("_s") and isinstance(shown, str) else shown
            if (",".join(default) if isinstance(default, tuple) else default) != seconds:
                wrong.append((parameter, default, seconds))
    assert not wrong
