"""OpenAPI: every reference resolves, every kind is described, and both versions and encodings agree."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.api.documents.served_kinds import ALL_KINDS, KINDS, MEASURED, REVIEWS
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.api.schema.protobuf import _fields, messages
from moorage.api.schema.schemas import kind_schema, schema
from moorage.cluster.apiserver.http.serve import open_store
from moorage.cluster.apiserver.schema import openapi
from moorage.cluster.apiserver.schema.discovery import aggregated_version
from moorage.cluster.apiserver.schema.openapi import SWAGGER_PROTOBUF, SWAGGER_SENT, describe, descriptions, swagger_protobuf

PLACES = sorted(openapi.index()["paths"])


def inner(found) -> Iterator[dict]:
    """Yield every map in a document."""
    if isinstance(found, dict):
        yield found
    for one in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from inner(one)


@pytest.mark.parametrize("place", PLACES)
def test_every_reference_resolves(place):
    document = openapi.document_of(place)
    schemas = document["components"]["schemas"]
    references = {one["$ref"] for one in inner(document) if isinstance(one.get("$ref"), str)}
    assert references
    assert {one.removeprefix("#/components/schemas/") for one in references} <= set(schemas)
    for one in inner(schemas):
        if isinstance(one.get("required"), list):  # a schema of schemas has a property of that name
            assert set(one["required"]) <= set(one.get("properties", one["required"]))


@pytest.mark.parametrize("place", PLACES)
def test_documents_survive_being_decoded_and_encoded(place):
    """Go's clients omit empty fields, which would change the document."""
    for one in inner(openapi.document_of(place)["paths"]):
        assert all(value not in ([], {}, "", None) for name, value in one.items() if name != "group")


def test_every_kind_is_described_in_both_versions():
    old = openapi.swagger(ALL_KINDS)["definitions"]
    for kind in KINDS:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        schemas = openapi.document_of(place, ALL_KINDS)["components"]["schemas"]
        for described in (schemas, old):
            (found,) = [one for one in described.values() if one.get("x-kubernetes-group-version-kind") == [gvk]]
            assert {"apiVersion", "kind", "metadata"} <= set(found["properties"])


#: Structs whose every field scheduling reads or writes, or people look up because of it.
SCHEDULING = (
    "core.PodSpec", "core.PodStatus", "core.Affinity", "core.NodeAffinity", "core.NodeSelectorTerm", "core.PodAffinity",
    "core.NodeSelectorRequirement", "core.PodAffinityTerm", "core.PodAntiAffinity", "core.Taint", "core.Toleration",
    "core.TopologySpreadConstraint", "core.ResourceRequirements", "core.ContainerPort", "core.NodeSpec", "core.NodeStatus",
    "policy.PodDisruptionBudgetSpec", "policy.PodDisruptionBudgetStatus", "resource.ResourceClaimSpec",
    "resource.DeviceRequest", "resource.ExactDeviceRequest",
    "resource.DeviceSubRequest", "resource.ResourceSliceSpec", "storage.CSINodeDriver",
    "scheduling.v1alpha2.PodGroupSpec", "scheduling.v1alpha2.PodGroupStatus", "scheduling.v1alpha2.WorkloadSpec",
    "core.PersistentVolumeClaimSpec", "core.PodCondition", "core.NodeCondition", "node.Scheduling",
)  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULING)
def test_fields_that_scheduling_reads_are_described(name):
    assert [field for field in schema(name).fields if not describe(name, field)] == []


@pytest.mark.parametrize("kind", [*KINDS, *MEASURED, *REVIEWS], ids=lambda kind: kind.resource)
def test_every_kind_is_described(kind):
    shape = kind_schema(kind)
    assert [field for field in ("", *shape.fields) if not describe(shape.name, field)] == []


def test_descriptions_are_sentences_about_existing_fields():
    for name, texts in descriptions().items():
        fields = {"", "apiVersion", "kind", *(schema(name).fields if name in messages() else texts)}
        assert texts.keys() <= fields, name
        assert name in messages() or name.startswith("*")
        for text in texts.values():
            assert (text[0].isupper(), text[-1], len(text) < 200) == (True, ".", True), text


def test_descriptions_are_in_both_versions():
    new = openapi.document_of("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    old = openapi.swagger()["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    for found in (new, old):
        assert found["nodeName"]["description"].startswith("The node of the pod")
    # Beside a reference there is nothing in version 3, and readers of version 2 know no other way.
    assert new["affinity"].keys() == {"allOf", "description"}
    assert old["affinity"].keys() == {"$ref", "description"}


def test_int_or_string_fields_state_both_types():
    new, old = openapi.document_of("apis/apps/v1")["components"]["schemas"], openapi.swagger()["definitions"]
    for name, form, types in (
        ("util.intstr.IntOrString", "int-or-string", ["integer", "string"]),
        ("api.resource.Quantity", None, ["string", "number"]),
    ):
        either, one = new[f"io.k8s.apimachinery.pkg.{name}"], old[f"io.k8s.apimachinery.pkg.{name}"]
        assert (either.get("format"), [found["type"] for found in either["oneOf"]]) == (form, types)
        assert "type" not in either
        assert (one.get("format"), one["type"]) == (form, "string")


def test_lists_state_their_merge_strategy():
    pod = openapi.swagger()["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert pod["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert pod["nodeSelector"]["x-kubernetes-map-type"] == "atomic"
    assert pod["tolerations"]["x-kubernetes-list-type"] == "atomic"


def test_version_2_says_the_same_in_protobuf():
    document = openapi.swagger()

    def names(field):
        """Return the names in one of the document's fields."""
        (body,) = [raw for number, raw in _fields(swagger_protobuf(document)) if number == field]
        return [dict(_fields(named))[1].decode() for _, named in _fields(body)]

    assert names(8) == list(document["paths"])
    assert names(9) == list(document["definitions"])


ACCEPTED = {
    "": "application/json", "*/*": "application/json", SWAGGER_PROTOBUF: SWAGGER_SENT,
    f"{SWAGGER_PROTOBUF},application/json": SWAGGER_SENT, "application/json;q=0.9": "application/json",
}  # fmt: skip


def test_version_2_is_sent_in_the_requested_encoding(against_a_server):
    async def test(client, _):
        for accept, form in ACCEPTED.items():
            headers = {"Authorization": "Bearer a-token-for-tests", "Accept": accept}
            async with client.session.get(f"{client.base}/openapi/v2", headers=headers) as answer:
                assert (accept, answer.status, answer.headers["Content-Type"]) == (accept, 200, form)
        assert (await client.ask("GET", "/openapi/v2", Accept="text/html"))[0] == 406

    against_a_server(test)


V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v=v2", "v=v2beta1")
DISCOVERY = {
    "application/json": "", f"{V2},application/json": "v2", f"{V2BETA1},application/json": "v2beta1",
    f"{V2},{V2BETA1}": "v2", f"application/json,{V2}": "", V2.replace("v=v2", "v=v9"): "", "": "",
}  # fmt: skip


@pytest.mark.parametrize(("accept", "version"), DISCOVERY.items(), ids=range(len(DISCOVERY)))
def test_aggregated_discovery_has_the_requested_version(accept, version):
    assert aggregated_version(accept) == version


RECORDED = json.loads(Path(__file__).with_name("openapi_fields.json").read_text("utf-8"))
#: Fields of 1.36 that 1.37 has replaced, and that are still read.
OF_1_36 = {
    "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus": {"resources"},
    "io.k8s.api.resource.v1.Device": {"nodeAllocatableResourceMappings"},
}
#: Groups whose schemas have another name here: those of extensions of the API.
RENAMED = {
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.": "io.k8s.api.apiextensions.",
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.": "io.k8s.api.apiregistration.",
}


def test_fields_are_those_of_1_37():
    """Every field of 1.37.2 is there, and no other. ``openapi_fields.json`` has those of kube-apiserver."""
    gates = FeatureGates({}, find_release("1.37").name)
    kinds = open_store(seed=1, gates=gates).kinds
    ours = {}
    for path in openapi.index(kinds)["paths"]:
        for name, found in openapi.document_of(path, kinds)["components"]["schemas"].items():
            ours[name] = set(found.get("properties", ()))
    differences = {}
    for name, fields in RECORDED.items():
        for theirs, own in RENAMED.items():
            name = name.replace(theirs, own)  # noqa: PLW2901
        if name in ours and (found := ours[name] ^ set(fields.split()) - OF_1_36.get(name, set())) - OF_1_36.get(name, set()):
            differences[name] = found
    assert differences == {}
    assert len(RECORDED.keys() & ours.keys()) > 450
