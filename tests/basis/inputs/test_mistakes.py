"""What messages say of files that people mistype."""

import pytest

from moorage.basis.inputs.files import InputFile, open_sources
from moorage.basis.inputs.objects import find_objects
from moorage.errors import InputError

HEAD = "apiVersion: v1\nkind: Pod\nmetadata:\n"


def fault_of(text):
    with pytest.raises(InputError) as caught:
        list(find_objects(InputFile("in.yaml", text.encode())))
    return str(caught.value).splitlines()


def test_a_template_that_was_not_rendered():
    message, *shown = fault_of(HEAD + "  name: {{ .Release.Name }}\nspec: {}\n")
    assert message.startswith("in.yaml:4: ")
    assert message.endswith("{{ .Release.Name }} is a template that was not rendered: render it with helm template first")
    assert shown == ["  3 | metadata:", "  4 |   name: {{ .Release.Name }}", "    |         ^", "  5 | spec: {}"]


def test_a_tab_in_the_indentation():
    message, *shown = fault_of(HEAD + "  labels:\n  \ta: b\n")
    assert "the line is indented with a tab: YAML allows only spaces there" in message
    assert shown[1:3] == ["  5 |    a: b", "    |   ^"]


@pytest.mark.parametrize("cut", [40, 60, 97])
def test_json_that_ends_too_early(cut):
    text = '{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x}","a":1}}]}'[:cut]
    message, source, caret = fault_of(text)
    opened = {40: 1, 60: 3, 97: 4}[cut]
    assert f"the file ends after {cut} bytes" in message
    assert (f"{opened} brackets still open" in message) is (opened > 1)
    assert caret.index("^") - caret.index("|") == source.rindex(text[-1]) - source.index("|") + 1


def test_the_excerpt_shows_the_end_of_a_long_line():
    message, source, caret = fault_of('{"a": [' + "1, " * 500 + "2")
    assert message.startswith("in.yaml:1: unexpected end of JSON input")
    assert source.endswith("1, 2")
    assert len(source) < 110
    assert len(caret) == len(source) + 1


def test_names_from_the_file_are_escaped():
    lines = fault_of(HEAD + "  name: \u202e\u2028x\n labels: {a: b}\n")
    assert all(line.isprintable() for line in lines)
    assert any("\\u202e" in line for line in lines)


def test_addresses_are_not_fetched():
    with pytest.raises(InputError, match="addresses are not fetched; download it first"):
        list(open_sources(["https://example.com/pod.yaml"]))


@pytest.mark.parametrize("recursive", [False, True])
def test_a_chart_is_to_be_rendered(tmp_path, recursive):
    (tmp_path / "Chart.yaml").write_text("name: x\n")
    (tmp_path / "templates").mkdir()
    with pytest.raises(InputError, match="this is a Helm chart; render it first: helm template"):
        list(open_sources([str(tmp_path)], recursive=recursive))


@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_kustomization_is_to_be_built(tmp_path, name):
    (tmp_path / name).write_text("resources: [web.yaml]\n")
    (tmp_path / "web.yaml").write_text("{}\n")
    with pytest.raises(InputError, match="this is a kustomization; build it first: kubectl kustomize"):
        list(open_sources([str(tmp_path)]))
    (file,) = open_sources([str(tmp_path / "web.yaml")])
    assert file.where.endswith("web.yaml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("- {op: replace, path: /spec/replicas, value: 3}\n", "kubectl kustomize DIR"),
        ('[{"op": "remove", "path": "/spec"}]', "kubectl kustomize DIR"),
        ("- {op: replace}\n", "found a list"),
        ("[]", "found a list"),
    ],
)
def test_patches_of_a_kustomization_are_named(text, hint):
    with pytest.raises(InputError, match=r"expected a Kubernetes object with apiVersion and kind, found a list") as found:
        list(find_objects(InputFile("patch.yaml", text.encode())))
    assert hint in str(found.value)
    assert ("kustomize" in str(found.value)) == ("DIR" in hint)
