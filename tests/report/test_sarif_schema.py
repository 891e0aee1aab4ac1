"""SARIF output keeps to the parts of the format's schema that it uses.

The schema below has the requirements of OASIS' ``sarif-schema-2.1.0.json`` (errata 01) for the objects and properties that
``as_sarif`` writes, and rejects every other property, so that a new one has to be added here with its rules.
"""

import copy
import json

import pytest

from moorage.report.gate_outputs import as_sarif
from tests.interfaces.cli.test_simulate_output import violations
from tests.report.test_gates import REPORT


def closed(required, **properties):
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def of(name):
    return {"$ref": f"#/$defs/{name}"}


def many(items):
    return {"type": "array", "items": items}


TEXT = {"type": "string"}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SCHEMA = {
    **closed(["version", "runs"], **{"$schema": TEXT, "version": {"const": "2.1.0"}, "runs": many(of("run"))}),
    "$defs": {
        "run": closed(
            ["tool"], tool=of("tool"), invocations=many(of("invocation")), automationDetails=closed([], id=TEXT),
            originalUriBaseIds={"type": "object", "additionalProperties": of("artifactLocation")}, results=many(of("result")),
            properties={"type": "object"},
        ),
        "tool": closed(["driver"], driver=closed(["name"], name=TEXT, semanticVersion=TEXT, rules=many(of("rule")))),
        "invocation": closed(["executionSuccessful"], executionSuccessful={"type": "boolean"}),
        "rule": closed(["id"], id=TEXT, shortDescription=of("message"), defaultConfiguration=closed([], level=LEVEL)),
        "result": closed(
            ["message"], message=of("message"), ruleId=TEXT, ruleIndex={"type": "integer", "minimum": -1}, level=LEVEL,
            kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]}, locations=many(of("location")),
            partialFingerprints={"type": "object", "additionalProperties": TEXT},
        ),
        "message": closed(["text"], text=TEXT),
        "location": closed(
            [], physicalLocation=closed(
                ["artifactLocation"], artifactLocation=of("artifactLocation"),
                region=closed([], startLine={"type": "integer", "minimum": 1}),
            ),
            logicalLocations=many(closed([], fullyQualifiedName=TEXT, kind=TEXT)),
        ),
        "artifactLocation": closed([], uri=TEXT, uriBaseId=TEXT, description=of("message")),
    },
}  # fmt: skip


def faults(document):
    return list(violations(document, SCHEMA, root=SCHEMA))


def test_the_document_keeps_to_the_schema():
    assert faults(json.loads(as_sarif(REPORT))) == []


def test_the_output_of_a_simulation_keeps_to_the_schema(tmp_path, capsys):
    from moorage.interfaces.cli.main import main

    manifest = tmp_path / "pod.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    with pytest.raises(SystemExit):
        main(["simulate", "-f", str(manifest), "-o", "sarif"])
    document = json.loads(capsys.readouterr().out)
    assert faults(document) == []
    (result,) = document["runs"][0]["results"]
    assert result["message"]["text"].startswith("default/p is pending: ")  # it is compared with no run before


BROKEN = {
    "an unknown level": lambda result: result.update(level="fatal"),
    "no message": lambda result: result.pop("message"),
    "line 0": lambda result: result["locations"][0]["physicalLocation"]["region"].update(startLine=0),
    "another property": lambda result: result.update(severity="high"),
    "a fingerprint that is a number": lambda result: result["partialFingerprints"].update(x=1),
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
def test_the_check_can_fail(spoil):
    document = copy.deepcopy(json.loads(as_sarif(REPORT)))
    spoil(document["runs"][0]["results"][0])
    assert faults(document) != []
