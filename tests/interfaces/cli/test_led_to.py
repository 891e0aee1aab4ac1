"""Errors quote only files that the command line names: not those that a policy, a grid or a link of a checkout leads to."""

import pytest

WORD = "swordfish"
SECRET = f"{WORD}: [\n  password: {WORD}\n{WORD}\n"
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: '4', memory: 8Gi, pods: '10'}}\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "checkout"
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests" / "node.yaml").write_text(NODE)
    monkeypatch.chdir(folder)
    return folder


def policy(types):
    return f"apiVersion: moorage.dev/v1\nkind: CheckPolicy\nrules: [{{cost: {{atMost: 5}}}}]\ntypes: {types}\n"


def linked(folder):
    (folder / "manifests" / "more.yaml").symlink_to("../../secret")
    return ["simulate", "-f", "manifests"]


def linked_file(folder):
    (folder / "cluster.yaml").symlink_to("../secret")
    return ["simulate", "-f", "cluster.yaml"]


def linked_folder(folder):
    (folder.parent / "secrets").mkdir()
    (folder.parent / "secrets" / "s.yaml").write_text(SECRET)
    (folder / "app").symlink_to("../secrets")
    return ["simulate", "-f", "app"]


def linked_configuration(folder):
    (folder / "scheduler.yaml").symlink_to("../secret")
    return ["simulate", "-f", "manifests", "--config", "scheduler.yaml"]


def validated_configuration(folder):
    (folder / "scheduler.yaml").symlink_to("../secret")
    return ["config", "validate", "scheduler.yaml"]


def linked_policy(folder):
    (folder / "policy.yaml").symlink_to("../secret")
    return ["check", "-f", "manifests", "--policy", "policy.yaml"]


def linked_types(folder):
    (folder / "types.yaml").symlink_to("../secret")
    return ["plan", "-f", "manifests", "--types", "types.yaml"]


def linked_usage(folder):
    (folder / "usage.txt").symlink_to("../secret")
    return ["rightsize", "-f", "manifests", "--usage", "usage.txt"]


def linked_costs(folder):
    (folder / "costs.yaml").symlink_to("../secret")
    return ["explain", "--pending", "-f", "manifests", "--costs", "costs.yaml"]


def linked_project(folder):
    (folder / ".moorage.yaml").symlink_to("../secret")
    return ["explain", "--pending", "-f", "manifests"]


def named_in_a_project(folder):
    (folder / ".moorage.yaml").write_text("costs: ../secret\n")
    return ["explain", "--pending", "-f", "manifests"]


def named_in_a_policy(folder):
    (folder / "policy.yaml").write_text(policy("../secret"))
    return ["check", "-f", "manifests", "--policy", "policy.yaml"]


def configuration_in_a_grid(folder):
    (folder / "grid.yaml").write_text("clusters: {now: manifests}\nconfigs: {a: ../secret}\n")
    return ["sweep", "grid.yaml", "--store", "store", "--processes", "1"]


def cluster_in_a_grid(folder):
    (folder / "grid.yaml").write_text("clusters: {now: ../secret}\n")
    return ["sweep", "grid.yaml", "--store", "store", "--processes", "1"]


def trace_in_a_grid(folder):
    (folder / "grid.yaml").write_text("traces: {now: {format: openb, pods: ../secret, nodes: ../secret}}\n")
    return ["sweep", "grid.yaml", "--store", "store", "--processes", "1"]


WAYS = [
    linked, linked_file, linked_folder, linked_configuration, validated_configuration, linked_policy, linked_types,
    linked_usage, linked_costs, linked_project, named_in_a_project, named_in_a_policy, configuration_in_a_grid,
    cluster_in_a_grid, trace_in_a_grid,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_errors_quote_no_file_that_the_command_line_does_not_name(way, checkout, moorage):
    status, out, err = moorage(*way(checkout))
    assert status == 1, (out, err)
    assert "nothing of it is shown" in out + err
    assert WORD not in out + err


def test_files_that_the_command_line_names_are_quoted(checkout, moorage):
    (checkout / "manifests" / "more.yaml").write_text(SECRET)
    (checkout / "types.yaml").write_text("- {name: t, price: dear, like: n1}\n")
    (checkout / "policy.yaml").write_text(policy("types.yaml"))
    assert WORD in moorage("simulate", "-f", "manifests")[2]
    (checkout / "manifests" / "more.yaml").unlink()
    assert "price: 'dear' is no price" in moorage("check", "-f", "manifests", "--policy", "policy.yaml")[2]
