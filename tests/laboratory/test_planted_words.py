"""A word of its own in every field of every kind: which of them dumps, logs and redacted files still have."""

import json
import re
import tomllib

import msgspec
import pytest

from moorage.basis import folder_of
from moorage.basis.change_recorder import ObjectEncoder
from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.kept_fields import digest
from moorage.basis.inputs.simulated_kinds import KINDS, json_decoder
from moorage.laboratory.cluster_objects import cluster_input
from moorage.laboratory.dump.dump_file import DumpWriter
from moorage.laboratory.recording.redacted_log import RedactingEncoder
from moorage.laboratory.redact.redaction import redact_cluster
from moorage.laboratory.redact.redaction_tokens import RULES
from tests.planted import Planted

TABLE = tomllib.loads((folder_of("moorage.basis.inputs") / "kept_fields.toml").read_text())
KEPT, SOURCES = set(TABLE["kept"]), TABLE["sources"]
#: Fields whose values have a form of their own, so that an object can be decoded.
FORMS = {"minAvailable": 1, "maxUnavailable": 1, "maxSurge": 1, "targetPort": 1, ".port": 1}
EXPRESSION = 'device.driver == "{0}" || b"{0}" == b"x" || isQuantity("{0}") || r\'{0}\' == \'{0}\''
#: What the pages say is never in a file.
NEVER = {
    "mountOptions", "parameters", "volumeAttributes", "volumeHandle", "providerID", "secretRef", "secretName", "env", "args",
    "command", "livenessProbe", "managedFields", "nodePublishSecretRef", "secretNamespace", "keyring", "description",
}  # fmt: skip
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def planted(kind, **more):
    return Planted(kind, {**FORMS, **more})


def decoded(kind, document):
    return json_decoder(kind).decode(json.dumps(document))


def leaf(path):
    """Return the name of a field, and those of the fields around it."""
    parts = [re.sub(r"(\[\]|\{\}|\{key\})+$", "", one) for one in path.split(".")]
    return parts[-1], parts[:-1]


def is_declared(path):
    name, around = leaf(path)
    source = next((one for one in around if one in SOURCES), None)
    if source is not None and "ephemeral" not in around:
        return name in SOURCES[source].get("kept", ())
    return name in KEPT


def dumped(kind, document):
    writer = DumpWriter()
    writer.take(InputFile("page", json.dumps({"apiVersion": "v1", "kind": "List", "items": [document]}).encode()))
    return writer.items[0].decode()


@EACH_KIND
def test_a_dump_has_the_words_of_listed_fields_only(kind):
    made = planted(kind)
    left = made.left_in(dumped(kind, made.document))
    assert "metadata.name" in left
    assert [path for path in left if not is_declared(path)] == []
    assert not NEVER & {part for path in left for part in [leaf(path)[0], *leaf(path)[1]]}


@EACH_KIND
def test_a_log_has_what_a_dump_has(kind):
    made = planted(kind)
    obj = decoded(kind, made.document)
    log = ObjectEncoder().json(obj).decode()
    assert set(made.left_in(log)) <= set(made.left_in(dumped(kind, made.document)))


def words_of_redacted(kind, **more):
    made = planted(kind, **{"cel.expression": EXPRESSION.format, **more})
    redacted = redact_cluster(cluster_input([decoded(kind, made.document)]), b"k" * 20)
    return made, json.dumps(redacted.objects)


@EACH_KIND
def test_a_redacted_file_has_no_word(kind):
    made, text = words_of_redacted(kind)
    assert made.left_in(text) == []


@EACH_KIND
def test_a_redacted_log_has_no_word(kind):
    made = planted(kind, **{"cel.expression": EXPRESSION.format})
    obj = decoded(kind, made.document)
    encoder = RedactingEncoder(b"k" * 20)
    encoder.learn(obj)
    assert made.left_in(encoder.json(obj).decode() + encoder.key(obj)) == []


#: Names that have words of a cluster's own in a part of a text whose other parts stay.
TRICKY = {
    "a group of an owner": {"metadata.ownerReferences[].apiVersion": lambda word: f"{word}.example.com/v1"},
    "a kind of an owner": {"metadata.ownerReferences[].kind": lambda word: f"{word}Set"},
    "a counted resource": {"spec.hard": lambda word: {f"count/{word}s.{word}.example.com": "1"}},
    "a limited resource": {"spec.hard": lambda word: {f"requests.{word}.com/gpu": "1", f"limits.{word}": "1"}},
    "a counted resource of a known group": {"spec.hard": lambda word: {f"count/{word}.apps": "1", f"count/pods.{word}": "1"}},
    "a time zone": {"timeZone": lambda word: f"Europe/{word}"},
    "a schedule": {"schedule": lambda word: f"TZ={word} 0 0 * * *"},
    "a condition": {"conditions[].type": lambda word: f"{word}Ready", "conditions[].reason": lambda word: f"{word}Failed"},
    "a well-known label": {"metadata.labels": lambda word: {"kubernetes.io/arch": word, "karpenter.sh/capacity-type": word}},
    "a number of a label": {"metadata.labels": lambda word: {"apps.kubernetes.io/pod-index": word}},
    "a restricted label": {"metadata.labels": lambda word: {f"node-restriction.kubernetes.io/{word}": "true"}},
    "an annotation": {"metadata.annotations": lambda word: {"controller.kubernetes.io/pod-deletion-cost": word}},
    "a finalizer": {"metadata.finalizers": lambda word: [word, f"{word}.example.com/x"]},
    "a version": {"version": lambda word: f"1.2.3-{word}", "versions[]": lambda word: f"1.0.0+{word}"},
    "a resource": {"allocatable": lambda word: {word: "1", f"hugepages-{word}": "1", f"attachable-volumes-{word}": "1"}},
    "a source": {"driver": lambda word: f"{word}.csi.example.com", "provisioner": lambda word: f"{word}.io/p"},
}  # fmt: skip


@pytest.mark.parametrize("fixed", TRICKY.values(), ids=TRICKY)
def test_no_part_of_a_text_stays(fixed):
    hit = 0
    for kind in KINDS:
        made, text = words_of_redacted(kind, **fixed)
        hit += any(path.endswith(end.lstrip(".")) for path in made.words.values() for end in fixed)
        assert made.left_in(text) == [], kind.name
    assert hit


def values_of(value, path=""):
    """Yield the path and the value of every text of a document."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from values_of(held, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from values_of(one, path)
    else:
        yield path, value


def test_words_of_vocabularies_stay():
    first = {field: words[0] for field, words in RULES["vocabulary"].items() if field not in {"status", "type", "reason"}}
    seen = set()
    for kind in KINDS:
        _, text = words_of_redacted(kind, **{f".{field}{end}": word for field, word in first.items() for end in ("", "[]")})
        for path, value in values_of(json.loads(text)):
            name = path.rpartition(".")[2]
            if name in first and isinstance(value, str):
                assert value == first[name], (kind.name, path)
                seen.add(name)
    assert len(seen) > 15


def test_equal_handles_stay_equal():
    assert digest("vol-0a1b") == digest("aws://eu-1a/vol-0a1b").rpartition("/")[2]
    assert digest("vol-0a1b").startswith("vol-")
    assert digest("projects/p/zones/z/disks/d").split("/")[::2] == ["projects", "zones", "disks"]
    assert digest("aws:///eu-1a/i-0a") == digest("aws:///eu-1a/i-0a") != digest("aws:///eu-1a/i-0b")


CONTAINER = {
    "name": "c", "image": "i", "env": [{"name": "A", "value": "WORD"}], "args": ["WORD"],
    "resources": {"requests": {"cpu": "1"}},
}  # fmt: skip
VOLUME = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"a": "WORD"}}, "emptyDir": {"sizeLimit": "1Gi"}}
CUSTOM = {
    "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r", "managedFields": [{"manager": "WORD"}]},
    "spec": {"groups": [{"template": {"spec": {"containers": [CONTAINER], "volumes": [VOLUME]}}}]},
    "status": {"providerID": "aws:///zone/WORD"},
}  # fmt: skip


def test_objects_of_custom_kinds_have_no_environments_arguments_or_attributes():
    made = ObjectCleaner().custom("ray.io/v1", "RayCluster", msgspec.json.encode(CUSTOM))
    assert "WORD" not in json.dumps(made)
    [group] = made["spec"]["groups"]
    assert group["template"]["spec"]["containers"] == [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    assert group["template"]["spec"]["volumes"] == [{"name": "v", "csi": {"driver": "d"}, "emptyDir": {"sizeLimit": "1Gi"}}]
    assert made["status"] == {"providerID": digest("aws:///zone/WORD")}
