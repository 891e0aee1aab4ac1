"""The Helm chart: its files agree with each other and, where helm is there to render it, with the kustomize base."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import moorage

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "moorage"
TEMPLATES = sorted((CHART / "templates").iterdir())
CHART_YAML, VALUES = (yaml.safe_load((CHART / name).read_text()) for name in ("Chart.yaml", "values.yaml"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def test_the_chart_runs_this_version():
    assert (CHART_YAML["apiVersion"], CHART_YAML["appVersion"]) == ("v2", moorage.__version__)


def leaves(values, schema, path=()):
    """Yield the path of every value, down to where the schema leaves the rest to the user."""
    for name, value in values.items():
        inner = schema["properties"].get(name, {})
        if isinstance(value, dict) and inner.get("additionalProperties") is False:
            yield from leaves(value, inner, (*path, name))
        else:
            yield (*path, name)


def described(schema, path=()):
    for name, inner in schema["properties"].items():
        if inner.get("additionalProperties") is False:
            yield from described(inner, (*path, name))
        elif name != "global":
            yield (*path, name)


def test_the_schema_knows_every_value_and_no_others():
    assert sorted(leaves(VALUES, SCHEMA)) == sorted(described(SCHEMA))
    assert SCHEMA["additionalProperties"] is False


TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)}


@pytest.mark.parametrize("path", sorted(described(SCHEMA)), ids=".".join)
def test_what_is_so_by_default_has_the_type_that_the_schema_asks_for(path):
    value, schema = VALUES, SCHEMA
    for name in path:
        value, schema = value[name], schema["properties"][name]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    assert not kinds or type(value) in {TYPES[kind] for kind in kinds}
    assert value in schema.get("enum", [value])


def test_templates_read_the_values_there_are_and_all_of_them():
    text = "".join(path.read_text() for path in TEMPLATES)
    read = {tuple(found.split(".")) for found in re.findall(r"\.Values\.([\w.]+)", text)}
    assert read == set(described(SCHEMA))


def test_no_image_is_named():
    assert VALUES["image"]["repository"] == ""


def test_the_chart_s_own_roles_are_those_of_the_kustomize_component():
    def rules(path):
        return [yaml.safe_load(part) for part in re.findall(r"rules:\n((?:[- ] .*\n)+)", path.read_text())]

    theirs = rules(ROOT / "deploy/kustomize/components/own-roles/roles.yaml")
    assert [len(one) for one in theirs] == [25, 2]
    assert rules(CHART / "templates" / "roles.yaml") == theirs


def accepts(values):
    """Return whether the schema accepts these values beside the default ones."""
    jsonschema = pytest.importorskip("jsonschema")
    try:
        jsonschema.validate({**VALUES, "image": {**VALUES["image"], "repository": "x"}, **values}, SCHEMA)
    except jsonschema.ValidationError:
        return False
    return True


NAMES = {  # values, whether they are accepted
    "the name": ({"schedulerName": "default-scheduler"}, False),
    "another name": ({"schedulerName": "mine"}, True),
    "a profile": ({"configuration": {"profiles": [{"schedulerName": "mine"}, {"schedulerName": "default-scheduler"}]}}, False),
    "a profile without a name": ({"configuration": {"profiles": [{"plugins": {}}]}}, False),
    "other profiles": ({"configuration": {"profiles": [{"schedulerName": "mine"}, {"schedulerName": "yours"}]}}, True),
    "another configuration": ({"extraArgs": ["--config=/x"]}, False),
    "a flag": ({"extraArgs": ["--scheduler-name=default-scheduler"]}, False),
    "a flag with underscores": ({"extraArgs": ["--scheduler_name=default-scheduler"]}, False),
    "a policy": ({"extraArgs": ["--policy-configmap=x"]}, False),
    "the lease": ({"extraArgs": ["--leader-elect-resource-name=kube-scheduler"]}, False),
    "other flags": ({"extraArgs": ["--v=4", "--hang-limit=1m"]}, True),
    "the variable": ({"env": [{"name": "MOORAGE_REFUSED_NAMES", "value": ""}]}, False),
    "other variables": ({"env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}]}, True),
    "a digest": ({"image": {"repository": "x", "digest": "sha256:" + "a" * 64}}, True),
    "no digest": ({"image": {"repository": "x", "digest": "latest"}}, False),
}


@pytest.mark.parametrize(("values", "accepted"), NAMES.values(), ids=NAMES)
def test_the_name_of_the_cluster_s_own_scheduler_is_refused_on_every_path(values, accepted):
    assert accepts(values) is accepted


def test_the_program_refuses_what_a_patch_of_the_manifests_brings():
    for path in (CHART / "templates" / "deployment.yaml", ROOT / "deploy/kustomize/base/deployment.yaml"):
        assert "- name: MOORAGE_REFUSED_NAMES\n          value: default-scheduler\n" in path.read_text()


# -- with helm ----------------------------------------------------------------------------------------------------------


def helm(*arguments):
    if shutil.which("helm") is None:
        pytest.skip("helm is not installed")
    return subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_helm_finds_nothing_wrong():
    ran = helm("lint", str(CHART), "--set", "image.repository=name-your-moorage-image")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def plain(objects):
    """Return objects by kind and name, without what the two ways of rendering name or mark in ways of their own."""
    found = {}
    for one in objects:
        if one["kind"] == "Namespace":
            continue  # helm makes it with --create-namespace
        name = one["metadata"]["name"]
        one["metadata"].pop("labels")
        if one["kind"] == "ConfigMap":
            one["data"] = {file: yaml.safe_load(text) for file, text in one["data"].items()}
            name = one["metadata"]["name"] = "configuration"
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"].pop("annotations", None)
            pod = one["spec"]["template"]["spec"]
            pod["volumes"][0]["configMap"]["name"] = "configuration"
            pod["containers"][0]["image"] = pod["containers"][0]["image"].partition(":")[0]
        found[one["kind"], one["metadata"].get("namespace"), name] = one
    return found


def test_helm_and_kustomize_come_to_the_same(render):
    ran = helm(
        "template", "moorage-scheduler", str(CHART), "--namespace", "moorage-system", "--set",
        "image.repository=name-your-moorage-image",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    theirs = [yaml.safe_load(yaml.safe_dump(one)) for one in render("base")]
    assert plain(one for one in yaml.safe_load_all(ran.stdout) if one) == plain(theirs)


REFUSED = {  # what is set, what helm says
    "no image": ("verbosity=2", "image.repository must name the image"),
    "a value that does not exist": ("image.repository=x,replica=3", "replica"),
    "the cluster's own name": ("image.repository=x,schedulerName=default-scheduler", "schedulerName"),
    "a lease that no right is granted on": ("image.repository=x,configuration.leaderElection.resourceName=y", "leaderElection"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED)
def test_helm_refuses(given, told):
    ran = helm("template", "moorage-scheduler", str(CHART), "--set", given)
    assert ran.returncode != 0
    assert told in ran.stderr
