"""Tables of rules: what each form of a rule and of a condition says, and that all tables can be read."""

import json
import pkgutil
import tomllib
from collections import Counter
from importlib import import_module
from importlib.resources import files

import pytest

from moorage.api.validation.rule_tables import RuleBook
from moorage.api.validation.values import VALUES
from moorage.rules import admission
from moorage.rules.admission.pod_checks import RULES

for one in pkgutil.iter_modules(admission.__path__, f"{admission.__name__}."):
    import_module(one.name)  # it may register checks
PACKAGES = {"moorage.api.validation": VALUES, "moorage.rules.admission": RULES}
OTHER = "[Part]\nrules = [['name', 'required']]\n[Strict]\nrules = [['name', 'required', {'^strict' = true}]]\n"
CASES = {  # the rule, the object, the faults
    "required": ("['name', 'required', 'why']", {"name": ""}, ["name: Required value: why"]),
    "required, given": ("['name', 'required', 'why']", {"name": "a"}, []),
    "required?": ("['size', 'required?']", {"size": 0}, []),
    "a field of a field": ("['a.b', 'required']", {"a": {"b": None}}, ["a.b: Required value"]),
    "several fields": ("[['a', 'b'], 'required']", {}, ["a: Required value", "b: Required value"]),
    "forbidden": ("['tls', 'forbidden', 'no']", {"tls": {}}, []),
    "forbidden?": ("['tls', 'forbidden?', 'no']", {"tls": {}}, ["tls: Forbidden: no"]),
    "forbidden, by a condition": ("['tls', 'forbidden', 'no', {plain = true}]", {"plain": True}, ["tls: Forbidden: no"]),
    "invalid, with a text that names fields": (
        "['a', 'invalid', 'above {b}', {'a>' = 'b'}]", {"a": 2, "b": 1}, ["a: Invalid value: 2: above 1"]
    ),
    "a comparison with an absent field": ("['a', 'invalid', 'no', {'a>' = 'b'}]", {"a": 2}, []),
    "an absent field that counts as 0": (
        "['a', 'invalid', 'no', {'a>' = 'b or 0'}]", {"a": 2}, ["a: Invalid value: 2: no"]
    ),
    "a range": ("['port', 'range', 1, 9]", {"port": 0}, ["port: Invalid value: 0: must be between 1 and 9, inclusive"]),
    "a pattern of a condition": ("['a', 'invalid', 'no', {'a!~' = '^/'}]", {"a": "x"}, ['a: Invalid value: "x": no']),
    "one of a list": ("['a', 'one of', ['x']]", {"a": "y"}, ['a: Unsupported value: "y": supported values: "x"']),
    "items": ("['all[]', 'Part']", {"all": [{"name": "a"}, {}]}, ["all[1].name: Required value"]),
    "items of a map": ("['all[]', 'Part']", {"all": {"k": {}}}, ["all[k].name: Required value"]),
    "items whose faults have no index": ("['all[]', 'Part', {'@at' = 'some'}]", {"all": [{}]}, ["some.name: Required value"]),
    "unique": (
        "['all[].name', 'unique']", {"all": [{"name": "a"}, {"name": "a"}]}, ['all[1].name: Duplicate value: "a"']
    ),
    "items, if their holder is so": (
        "['all[].name', 'required', {strict = true}]", {"strict": True, "all": [{}]}, ["all[0].name: Required value"]
    ),
    "a field of the holder": ("['all[]', 'Strict']", {"strict": True, "all": [{}]}, ["all[0].name: Required value"]),
    "a field of another holder": ("['all[]', 'Strict']", {"strict": False, "all": [{}]}, []),
    "another field in the fault": ("['a', 'required', {'@at' = 'b', c = 1}]", {"c": 1}, ["b: Required value"]),
    "another value in the fault": ("['a', 'invalid', 'no', {'@value' = '=text'}]", {"a": 1}, ['a: Invalid value: "text": no']),
    "set or not": ("['a', 'invalid', 'no', {'b?' = false}]", {"a": 1}, ["a: Invalid value: 1: no"]),
    "exactly false": ("['a', 'invalid', 'no', {'b==' = false}]", {"a": 1}, []),
    "in a list": ("['a', 'invalid', 'no', {'l[]' = 'x'}]", {"a": 1, "l": ["x"]}, ["a: Invalid value: 1: no"]),
    "the length of a list": ("['a', 'required', {'l#>' = 1}]", {"l": [1, 2]}, ["a: Required value"]),
    "a percentage": ("['a', 'invalid', 'no', {'a%' = 0}]", {"a": "0%"}, ['a: Invalid value: "0%": no']),
    "an absent object that counts as empty": ("['p', 'Part', {'@empty' = true}]", {}, ["p.name: Required value"]),
}  # fmt: skip


def book_of(tmp_path, monkeypatch, text, name):
    folder = tmp_path / name / "rules"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return RuleBook(name)


def test_what_rules_say(tmp_path, monkeypatch):
    text = "\n".join(f"[Case{i}]\nrules = [{rule}]" for i, (rule, _, _) in enumerate(CASES.values()))
    book = book_of(tmp_path, monkeypatch, f"{text}\n{OTHER}", "tables_of_cases")
    found = {name: list(map(str, book.faults(f"Case{i}", case[1]))) for i, (name, case) in enumerate(CASES.items())}
    assert found == {name: case[2] for name, case in CASES.items()}


CHOICE = """[Handler]
rules = [["", "choice", "none", "more"], ["after", "required"]]
[Handler.choices]
exec = "Part"
http = "get Part"
"""
STOPPED = '[Stopped]\nrules = [["a", "required", { "@stop" = true }], ["b", "required"]]\n'
UPDATES = '[Changed]\nrules = [["spec", "fixed"], ["size", "fixed?"]]\n'


def test_rules_about_several_fields_and_old_objects(tmp_path, monkeypatch):
    book = book_of(tmp_path, monkeypatch, CHOICE + STOPPED + UPDATES + OTHER, "tables_of_choices")

    def faults(name, value, *holders):
        return list(map(str, book.faults(name, value, "at", *holders)))

    assert faults("Handler", {"after": 1}) == ["at: Required value: none"]
    assert faults("Handler", {"after": 1, "http": {}}) == ["at.get.name: Required value"]
    assert faults("Handler", {"exec": {}, "http": {}}) == [
        "at.http: Forbidden: more", "at.exec.name: Required value", "at.after: Required value",
    ]  # fmt: skip
    assert faults("Stopped", {}) == ["at.a: Required value"]
    assert faults("Stopped", {"a": 1}) == ["at.b: Required value"]
    assert faults("Changed", {"spec": 2}, {"spec": 1, "size": 0}) == ["at.spec: Invalid value: 2: field is immutable"]
    assert not book.has("Missing")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_table_can_be_read_and_names_types_that_exist(package):
    book, names = PACKAGES[package], Counter()
    for one in (files(package) / "rules").iterdir():
        names.update(table for table in tomllib.loads(one.read_text(encoding="utf-8")))
    assert [name for name, times in names.items() if times > 1] == []
    tables = [name for name in names if name not in {"order", "patterns", "structs"}]
    assert len(tables) > 50
    for name in tables:
        assert book._rules(name)  # raises KeyError for a check or a pattern that does not exist
    used = {json.dumps(row[1]).strip('"') for name in tables for row in book._tables()[name]["rules"] if row[1][0].isupper()}
    assert used <= names.keys()
    choices = {one.rpartition(" ")[2] for name in tables for one in book._tables()[name].get("choices", {}).values()}
    assert choices - {""} <= names.keys()
