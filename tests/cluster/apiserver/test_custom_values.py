"""Values of custom kinds: what their schema and its rules accept, and what they say of others."""

from time import process_time

import pytest

from moorage.api.documents.statuses import ApiError
from moorage.api.schema.custom_kinds import apply_defaults
from moorage.rules.admission import custom_resource_rules, schema_validation
from moorage.rules.admission.custom_resource_strategy import _list_faults
from moorage.rules.admission.schema_validation import SchemaCheck
from moorage.rules.admission.string_formats import is_of_format
from tests.cluster.apiserver.custom_kinds import DEFINITIONS, MERGE, WIDGETS, ask, define, definition, message, widget

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
NONE_VALID = '"spec" must validate one and only one schema (oneOf). Found none valid'
VALUES = {  # schema, value, faults
    "of its type": ({"type": "integer"}, 3, []),
    "a whole number that was written with a point": ({"type": "integer"}, 3.0, []),
    "an integer where a number may be": ({"type": "number"}, 3, []),
    "of another type": (NUMBER, "x", ['spec: Invalid value: "string": spec in body must be of type integer: "string"']),
    "null": (NUMBER, None, ['spec: Invalid value: "null": spec in body must be of type integer: "null"']),
    "null where it may be": ({**NUMBER, "nullable": True}, None, []),
    "an int or a string": ({"x-kubernetes-int-or-string": True}, "5%", []),
    "neither": (
        {"x-kubernetes-int-or-string": True}, True,
        ['spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean"'],
    ),
    "too small": ({**NUMBER, "minimum": 2}, 1, ["spec: Invalid value: 1: spec in body should be greater than or equal to 2"]),
    "at an excluded bound": (
        {**NUMBER, "maximum": 2, "exclusiveMaximum": True}, 2, ["spec: Invalid value: 2: spec in body should be less than 2"],
    ),
    "beyond 32 bits": (
        {**NUMBER, "format": "int32"}, 2**31,
        ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec'],
    ),
    "no multiple": ({**NUMBER, "multipleOf": 5}, 7, ["spec: Invalid value: 7: spec in body should be a multiple of 5"]),
    "too long": ({**TEXT, "maxLength": 2}, "abc", ["spec: Too long: may not be more than 2 bytes"]),
    "too short": ({**TEXT, "minLength": 1}, "", ['spec: Invalid value: "": spec in body should be at least 1 chars long']),
    "no match": (
        {**TEXT, "pattern": "^[a-z]+$"}, "A", ["spec: Invalid value: \"A\": spec in body should match '^[a-z]+$'"],
    ),
    "no member": ({"enum": ["a", 1]}, "b", ['spec: Unsupported value: "b": supported values: "a", "1"']),
    "no date": (
        {**TEXT, "format": "date-time"}, "x", ['spec: Invalid value: "x": spec in body must be of type date-time: "x"'],
    ),
    "a format without meaning": ({**TEXT, "format": "fancy"}, "x", []),
    "a missing field": ({"type": "object", "required": ["a"]}, {}, ["spec.a: Required value"]),
    "too many fields": ({"type": "object", "maxProperties": 0}, {"a": 1}, ["spec: Too many: 1: must have at most 0 items"]),
    "too many items": ({"type": "array", "maxItems": 1}, [1, 2], ["spec: Too many: 2: must have at most 1 item"]),
    "a bad item": (
        {"type": "array", "items": NUMBER}, [1, "x"],
        ['spec[1]: Invalid value: "string": spec[1] in body must be of type integer: "string"'],
    ),
    "a bad value of a map": (
        {"type": "object", "additionalProperties": NUMBER}, {"a": "x"},
        ['spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"'],
    ),
    "one of two": ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, []),
    "none of two": (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {},
        [f'<nil>: Invalid value: "": {NONE_VALID}', "spec.a: Required value"],
    ),
    "both": (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1},
        ['<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    "refused": (
        {"not": {"required": ["a"]}}, {"a": 1}, ['<nil>: Invalid value: "": "spec" must not validate the schema (not)'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "faults"), VALUES.values(), ids=VALUES)
def test_a_value_is_checked(schema, value, faults):
    assert [str(fault) for fault in SchemaCheck().faults(schema, value, "spec")] == faults


FORMATS = {
    "bsonobjectid": ("507f1f77bcf86cd799439011", "x"), "byte": ("aGk=", "aGk"), "cidr": ("10.0.0.0/8", "10.0.0.0/33"),
    "creditcard": ("4111 1111 1111 1111", "4111"), "date": ("2024-02-29", "2023-02-29"),
    "date-time": ("2024-01-01T10:00:00.5Z", "2024-01-01 10:00"), "duration": ("3 weeks", "x"), "email": ("a@b.c", "a"),
    "hexcolor": ("#fff", "#ffff"), "hostname": ("a.example.com", "-a"), "ipv4": ("010.1.1.1", "1.1.1"),
    "ipv6": ("::1", "1.1.1.1"),
    "isbn": ("978-0321751041", "978-0321751042"), "isbn10": ("0321751043", "0321751044"), "isbn13": ("9780321751041", "1"),
    "k8s-long-name": ("a.b-c", "A"), "k8s-short-name": ("a-b", "a.b"), "mac": ("00:00:5e:00:53:01", "00-00:5e:00:53:01"),
    "password": ("", None), "rgbcolor": ("rgb(1,2,255)", "rgb(1,2,256)"), "ssn": ("078-05-1120", "1"),
    "uri": ("https://a.example/b?c", "a b"), "uuid": ("936DA01F-9ABD-4D9D-80C7-02AF85C822A8", "936D"),
    "uuid4": ("936DA01F-9ABD-4D9D-80C7-02AF85C822A8", "936DA01F-9ABD-5D9D-80C7-02AF85C822A8"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "texts"), FORMATS.items(), ids=FORMATS)
def test_a_format_is_checked(name, texts):
    good, bad = texts
    assert is_of_format(name, good)
    assert bad is None or not is_of_format(name, bad)


def test_a_costly_check_ends(monkeypatch):
    monkeypatch.setattr(schema_validation, "MAX_CHECKS", 10)
    monkeypatch.setattr(schema_validation, "MAX_PATTERN_WORK", 1000)
    many = {"type": "array", "items": {"anyOf": [{"enum": [i]} for i in range(100)]}}
    faults = [str(fault) for fault in SchemaCheck().faults(many, ["x"] * 5000, "spec")]
    assert "takes too long to validate" in faults[-1]
    assert len(faults) < 1000
    hard = {"type": "string", "pattern": "(a*)*b"}
    assert "takes too long to validate" in str(next(SchemaCheck().faults(hard, "a" * 5000, "spec")))


def test_an_update_may_leave_what_is_wrong(store):
    define(store, definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    ask(store, "POST", WIDGETS, widget("a", spec={"size": "x", "n": 1}))
    _, held = ask(store, "GET", f"{DEFINITIONS}/widgets.example.com")
    held["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object", "properties": {"size": NUMBER, "n": NUMBER},
    }  # fmt: skip
    assert ask(store, "PUT", f"{DEFINITIONS}/widgets.example.com", held)[0] == 200
    assert ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"n": 2}}, form=MERGE)[0] == 200
    code, told = message(ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"size": "y"}}, form=MERGE))
    assert (code, "spec.size in body must be of type integer" in told) == (422, True)


# -- rules ----------------------------------------------------------------------------------------------------------------

RULED = {
    "type": "object",
    "properties": {
        "least": NUMBER, "most": NUMBER, "max-size": NUMBER, "fixed": {**TEXT, "maxLength": 9, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "is immutable", "reason": "FieldValueForbidden"}]},
        "parts": {"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {"n": NUMBER}}},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.least) || !has(self.most) || self.least <= self.most",
         "messageExpression": "'least is above ' + (self.most == 2 ? 'two' : 'most')"},
        {"rule": "!has(self.max__dash__size) || self.max__dash__size < 10", "fieldPath": ".max-size"},
        {"rule": "!has(self.parts) || self.parts.all(one, one.n > 0)", "message": "all parts count"},
    ],
}  # fmt: skip
RULES = {  # spec, what is said
    "kept": ({"least": 1, "most": 2, "max-size": 3, "parts": [{"n": 1}]}, ""),
    "a message of its own": ({"least": 3, "most": 2}, "spec: Invalid value: least is above two"),
    "a path of its own": (
        {"max-size": 10}, "spec.max-size: Invalid value: failed rule: !has(self.max__dash__size) || self.max__dash__size < 10",
    ),
    "a part without the field": (
        {"parts": [{}]}, 'spec: Invalid value: "object": no such key: n evaluating rule: all parts count',
    ),
    "not checked": (
        {"least": "x", "most": 2}, "some validation rules were not checked because the object was invalid; correct",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), RULES.values(), ids=RULES)
def test_a_rule_is_checked(store, spec, why):
    define(store, definition(RULED))
    code, told = message(ask(store, "POST", WIDGETS, widget("a", spec=spec)))
    assert (code, why in told) == (422 if why else 201, True), told


def test_a_rule_about_a_change(store):
    define(store, definition(RULED))
    assert ask(store, "POST", WIDGETS, widget("a", spec={"fixed": "x"}))[0] == 201
    assert ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"least": 1}}, form=MERGE)[0] == 200
    code, told = message(ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"fixed": "y"}}, form=MERGE))
    assert (code, told) == (422, 'Widget.example.com "a" is invalid: spec.fixed: Forbidden: is immutable')


WRONG_RULES = {
    "no such field": ("self.x > 1", "undefined field 'x'"),
    "no truth": ("1 + 1", "cel expression must evaluate to a bool"),
    "no expression": ("self.", "Syntax error"),
}


@pytest.mark.parametrize(("rule", "why"), WRONG_RULES.values(), ids=WRONG_RULES)
def test_a_wrong_rule_is_refused(store, rule, why):
    wrong = {"type": "object", "properties": {"n": NUMBER}, "x-kubernetes-validations": [{"rule": rule}]}
    code, told = message(ask(store, "POST", DEFINITIONS, definition(wrong)))
    assert (code, why in told) == (422, True), told


def test_an_object_is_not_checked_without_end(store, monkeypatch):
    monkeypatch.setattr(custom_resource_rules, "_PER_CALL", 10_000)
    many = {
        "type": "array",
        "maxItems": 200,
        "items": NUMBER,
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a != b || a == b))"}],
    }
    define(store, definition({"type": "object", "properties": {"many": many}}))
    code, told = message(ask(store, "POST", WIDGETS, widget("a", spec={"many": list(range(200))})))
    assert code == 422
    assert "no further validation rules will be run due to call cost exceeds limit for rule" in told


def test_unknown_fields_count_when_objects_are_compared(store):
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    rule = {"rule": "self.free == oldSelf.free", "message": "free is immutable"}
    define(store, definition({"type": "object", "properties": {"free": free}, "x-kubernetes-validations": [rule]}))
    assert ask(store, "POST", WIDGETS, widget("a", spec={"free": {"x": [1, {"y": None}]}}))[0] == 201
    same = ask(store, "PATCH", f"{WIDGETS}/a", {"metadata": {"labels": {"b": "c"}}}, form=MERGE)
    assert same[0] == 200
    code, told = message(ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"free": {"x": 2}}}, form=MERGE))
    assert (code, "free is immutable" in told) == (422, True), told


NAMED = "self.metadata.name.endsWith('-berth')"
HEADS = {  # what the schema says of metadata
    "nothing": None,
    "an object": {"type": "object"},
    "other fields": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}}},
}


@pytest.mark.parametrize("metadata", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("embedded", [False, True], ids=["the object", "an object within"])
def test_rules_see_names_whatever_the_schema_says_of_metadata(store, metadata, embedded):
    head = {} if metadata is None else {"metadata": metadata}
    made = definition({"type": "object"}, more={} if embedded else head)
    root = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    if embedded:
        root["properties"]["boat"] = inner | {"properties": head}
    named = root["properties"]["boat"] if embedded else root
    named["x-kubernetes-validations"] = [{"rule": NAMED, "message": "ends in -berth"}]
    define(store, made)
    codes = []
    for name in ("west", "west-berth"):
        boat = {"apiVersion": "v1", "kind": "Boat", "metadata": {"name": name}}
        sent = widget("a", boat=boat) if embedded else widget(name)
        code, told = message(ask(store, "POST", WIDGETS, sent))
        assert code == 201 or "ends in -berth" in told, told
        codes.append(code)
    assert codes == [422, 201]


KEYWORDS = ["as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
            "namespace", "return", "var", "void", "while"]  # fmt: skip


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_is_the_name_of_a_field(store, word):
    rules = [f"!has(self.{word}) || self.{word} != 'bad'", f"!has(self.__{word}__) || self.__{word}__ != 'worse'",
             f"self.?{word}.orValue('') != 'worst'"]  # fmt: skip
    checks = [{"rule": rule} for rule in rules]
    define(store, definition({"type": "object", "properties": {word: TEXT}, "x-kubernetes-validations": checks}))
    for value, code in {"good": 201, "bad": 422, "worse": 422, "worst": 422}.items():
        assert ask(store, "POST", WIDGETS, widget(value, spec={word: value}))[0] == code, value


def test_a_keyword_that_no_field_has_is_named_as_it_was_written(store):
    wrong = {"type": "object", "properties": {"n": NUMBER}, "x-kubernetes-validations": [{"rule": "self.namespace == ''"}]}
    code, told = message(ask(store, "POST", DEFINITIONS, definition(wrong)))
    assert (code, "undefined field 'namespace'" in told) == (422, True), told


TIMED = {
    "type": "object",
    "properties": {
        "wait": {**TEXT, "format": "duration"}, "from": {**TEXT, "format": "date-time"}, "day": {**TEXT, "format": "date"},
        "net": TEXT, "site": TEXT,
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.wait) || self.wait >= duration('1s')", "message": "waits too short"},
        {"rule": "!has(self.from) || self.from.getFullYear() >= 2026", "message": "begins too early"},
        {"rule": "!has(self.day) || self.day < timestamp('2027-01-01T00:00:00Z')", "message": "the day is too late"},
        {"rule": "!has(self.net) || (isCIDR(self.net) && cidr(self.net).containsIP('10.0.0.1'))", "message": "not our net"},
        {"rule": "!has(self.site) || (isURL(self.site) && url(self.site).getScheme() == 'https')", "message": "not https"},
    ],
}  # fmt: skip
TIMES = {
    "all is well": ({"wait": "5s", "from": "2026-01-01T00:00:00Z", "day": "2026-12-31", "net": "10.0.0.0/8"}, ""),
    "a short wait": ({"wait": "10ms"}, "waits too short"),
    "an early time": ({"from": "2025-12-31T23:59:59Z"}, "begins too early"),
    "a late day": ({"day": "2027-01-01"}, "the day is too late"),
    "another net": ({"net": "192.168.0.0/16"}, "not our net"),
    "no address": ({"site": "http://a.example.com"}, "not https"),
}


@pytest.mark.parametrize(("spec", "why"), TIMES.values(), ids=TIMES)
def test_rules_know_times_and_addresses(store, spec, why):
    define(store, definition(TIMED))
    code, told = message(ask(store, "POST", WIDGETS, widget("a", spec=spec)))
    assert (code, why in told) == (422 if why else 201, True), told


def test_a_large_enum_is_looked_up():
    many = {"type": "array", "items": {"enum": list(range(20_000))}}
    begun = process_time()
    assert not list(SchemaCheck().faults(many, [19_999] * 20_000, "spec"))
    assert "Unsupported value: 20001" in str(next(SchemaCheck().faults(many, [20_001] * 20_000, "spec")))
    assert process_time() - begun < 1.0


def test_many_alternatives_of_many_items_end():
    one_of = [{"properties": {"a": {"enum": [at]}}} for at in range(2_000)]
    begun = process_time()
    faults = list(SchemaCheck().faults({"items": {"oneOf": one_of}}, [{"a": at} for at in range(5_000)], "spec"))
    assert "takes too long to validate" in str(faults[-1])
    assert process_time() - begun < 1.0


def test_an_infinite_quotient_is_a_multiple():
    assert not list(SchemaCheck().faults({"type": "number", "multipleOf": 5e-324}, 1e308, "spec"))


def test_the_defaults_of_an_object_are_limited():
    root = {"properties": {"spec": {"items": {"properties": {"a": {"default": "a" * 1_000_000}}}}}}
    one = {"spec": [{}]}
    apply_defaults(root, one)
    assert len(one["spec"][0]["a"]) == 1_000_000
    with pytest.raises(ApiError, match="the defaults of the object have more than 1572864 bytes") as raised:
        apply_defaults(root, {"spec": [{} for _ in range(20_000)]})
    assert raised.value.code == 413


def test_keys_of_items_are_limited():
    schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [f"a{at}" for at in range(5_000)], "items": {}}
    begun = process_time()
    assert "too many items to compare by 5000 keys" in str(next(_list_faults(schema, [{}] * 50_000, "spec")))
    assert process_time() - begun < 0.5
