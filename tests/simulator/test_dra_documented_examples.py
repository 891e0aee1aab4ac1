"""Simulate the examples of Kubernetes' documentation and enhancement proposals for device claims.

Source  kubernetes.io, concepts and tasks of dynamic resource allocation; KEPs 4381 (structured parameters), 4816 (prioritized
        list), 5018 (admin access), 4815 (partitionable devices), 5075 (consumable capacity), 5055 (device taints), 5007
        (binding conditions) and 5004 (extended resources). The manifests are our own.
"""

from __future__ import annotations

import textwrap

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options

CATS = "resource-driver.example.com"
DRA = "dra.example.com"


def yaml_of(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


def nodes(*names: str, allocatable: str = "") -> str:
    more = f", {allocatable}" if allocatable else ""
    return "---\n".join(
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n"
        f'status: {{allocatable: {{cpu: "8", memory: 8Gi, pods: "20"{more}}}}}\n'
        for name in names
    )


def device_class(name: str, expression: str = "", more: str = "") -> str:
    selectors = f"selectors: [{{cel: {{expression: {expression!r}}}}}]" if expression else ""
    spec = ", ".join(filter(None, (selectors, more)))
    return f"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def devices(node: str, driver: str, text: str, counters: str = "", pool: str = "") -> str:
    """Return the slices of one pool on a node: one for the devices, and one for shared counters if there are any."""
    count = 2 if counters else 1
    head = (
        f"nodeName: {node}\n  driver: {driver}\n  pool: {{name: {pool or node}, generation: 1, resourceSliceCount: {count}}}\n"
    )
    kind = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: %s}\nspec:\n  " + head
    slices = [kind % f"slice-{node}" + "  devices:\n" + textwrap.indent(yaml_of(text), "  ")]
    if counters:
        slices.append(kind % f"counters-{node}" + "  sharedCounters:\n" + textwrap.indent(yaml_of(counters), "  "))
    return "---\n".join(slices)


def claim(name: str, requests: str, constraints: str = "", kind: str = "ResourceClaim", namespace: str = "default") -> str:
    body = "devices:\n  requests:\n" + textwrap.indent(yaml_of(requests), "  ")
    if constraints:
        body += f"  constraints: {constraints}\n"
    depth, head = ("  ", "spec:\n") if kind == "ResourceClaim" else ("    ", "spec:\n  spec:\n")
    metadata = f"metadata: {{name: {name}, namespace: {namespace}}}\n"
    return f"apiVersion: resource.k8s.io/v1\nkind: {kind}\n{metadata}{head}" + textwrap.indent(body, depth)


def template(name: str, requests: str, constraints: str = "") -> str:
    return claim(name, requests, constraints, kind="ResourceClaimTemplate")


def pod(name: str, *claims: str, templates: tuple[str, ...] = (), resources: str = "{}", namespace: str = "default") -> str:
    used = [f"{{name: use-{at}, resourceClaimName: {one}}}" for at, one in enumerate(claims)]
    used += [f"{{name: made-{at}, resourceClaimTemplateName: {one}}}" for at, one in enumerate(templates)]
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"spec: {{resourceClaims: [{', '.join(used)}], containers: [{{name: c, image: i, resources: {resources}}}]}}\n"
    )


def run(*documents: str):
    """Simulate, and return each pod's node (or why it has none) and its devices by request."""
    content = "---\n".join(documents).encode()
    _, found = simulate_cluster(read_sources([InputFile("example.yaml", content)]), Options())
    where = {one.name: one.node or one.message for one in found.pods}
    given: dict[str, list[str]] = {name: [] for name in where}
    for one in found.devices:
        for key in one.pods:
            given[key.partition("/")[2]].append(f"{one.request}={one.device}")
    return where, {name: sorted(got) for name, got in given.items()}


def cats(node: str) -> str:
    return devices(node, CATS, "\n".join(
        f"- name: {size}-{colour}\n  attributes: {{color: {{string: {colour}}}, size: {{string: {size}}}}}"
        for size in ("large", "small") for colour in ("black", "white")
    ))  # fmt: skip


def cat(size: str, colour: str) -> str:
    attributes = f'device.attributes["{CATS}"]'
    return f'{{cel: {{expression: \'{attributes}.color == "{colour}" && {attributes}.size == "{size}"\'}}}}'


CAT_CLASS = device_class("resource.example.com", f'device.driver == "{CATS}"')


# -- the concept page -----------------------------------------------------------------------------------------------------


def test_each_container_gets_its_own_large_black_cat_from_a_template():
    asked = template(
        "large-black-cat",
        f"- name: req-0\n  exactly: {{deviceClassName: resource.example.com, selectors: [{cat('large', 'black')}]}}",
    )
    where, given = run(
        nodes("n1", "n2"), CAT_CLASS, cats("n1"), asked,
        pod("first", templates=("large-black-cat",)), pod("second", templates=("large-black-cat",)),
    )  # fmt: skip
    assert where["first"] == "n1"
    assert where["second"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    assert given == {"first": ["req-0=large-black"], "second": []}


PRIORITIZED = f"""
- name: req-0
  firstAvailable:
  - {{name: large-black, deviceClassName: resource.example.com, selectors: [{cat("large", "black")}]}}
  - {{name: small-white, deviceClassName: resource.example.com, selectors: [{cat("small", "white")}], count: 2}}
"""


@pytest.mark.parametrize(
    ("colours", "expected"),
    [
        (("large-black", "small-white", "small-white"), ["req-0/large-black=cat-0"]),
        (("small-white", "small-white"), ["req-0/small-white=cat-0", "req-0/small-white=cat-1"]),
        (("small-white",), []),
    ],
)
def test_the_first_available_request_of_a_prioritized_list(colours, expected):
    there = "\n".join(
        "- name: cat-{}\n  attributes: {{size: {{string: {}}}, color: {{string: {}}}}}".format(at, *one.split("-"))
        for at, one in enumerate(colours)
    )
    where, given = run(nodes("n1"), CAT_CLASS, devices("n1", CATS, there), claim("c", PRIORITIZED), pod("p", "c"))
    assert given["p"] == expected
    assert (where["p"] == "n1") == bool(expected)


def test_a_node_with_an_earlier_alternative_is_preferred():
    small = "- name: cat-{}\n  attributes: {{size: {{string: small}}, color: {{string: white}}}}"
    there = "\n".join(small.format(at) for at in range(2))
    where, given = run(
        nodes("n1", "n2"), CAT_CLASS, devices("n1", CATS, there), cats("n2"), claim("c", PRIORITIZED), pod("p", "c")
    )
    assert (where["p"], given["p"]) == ("n2", ["req-0/large-black=large-black"])


def test_pods_that_share_a_claim_run_where_its_device_is():
    asked = claim("shared", "- {name: req, exactly: {deviceClassName: resource.example.com}}")
    where, given = run(nodes("n1", "n2"), CAT_CLASS, cats("n2"), asked, pod("a", "shared"), pod("b", "shared"))
    assert where == {"a": "n2", "b": "n2"}
    assert given["a"] == given["b"] == ["req=large-black"]


def test_admin_access_includes_allocated_devices():
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: admin, labels: {resource.kubernetes.io/admin-access: 'true'}}\n"
    request = "- {name: req, exactly: {deviceClassName: resource.example.com, allocationMode: All, adminAccess: true}}"
    own = claim("own", "- {name: req, exactly: {deviceClassName: resource.example.com, allocationMode: All}}")
    where, given = run(
        nodes("n1"), space, CAT_CLASS, cats("n1"), own, claim("all", request, namespace="admin"),
        pod("worker", "own"), pod("monitor", "all", namespace="admin"),
    )  # fmt: skip
    assert where == {"worker": "n1", "monitor": "n1"}
    assert len(given["worker"]) == len(given["monitor"]) == 4


def test_all_devices_or_none():
    every = "- {name: req, exactly: {deviceClassName: resource.example.com, allocationMode: All}}"
    one = claim("one", "- {name: req, exactly: {deviceClassName: resource.example.com}}")
    where, given = run(nodes("n1"), CAT_CLASS, cats("n1"), one, claim("all", every), pod("a", "one"), pod("b", "all"))
    assert where["a"] == "n1"
    assert "cannot allocate all claims" in where["b"]
    assert given["b"] == []


# -- selectors ------------------------------------------------------------------------------------------------------------

MODELS = f"""
- name: old
  attributes: {{model: {{string: a100}}, numa: {{int: 0}}, driverVersion: {{version: 1.2.3}}, healthy: {{bool: true}}}}
  capacity: {{memory: {{value: 40Gi}}}}
- name: new
  attributes: {{model: {{string: h100}}, numa: {{int: 1}}, driverVersion: {{version: 2.0.0}}, {DRA}/nvlink: {{bool: true}}}}
  capacity: {{memory: {{value: 80Gi}}, {DRA}/slots: {{value: "4"}}}}
"""
EXPRESSIONS = {
    "a string attribute": (f'device.attributes["{DRA}"].model == "h100"', ["new"]),
    "the driver's name": (f'device.driver == "{DRA}"', ["old", "new"]),
    "another driver": ('device.driver == "other.example.com"', []),
    "an exact quantity": (f'device.capacity["{DRA}"].memory == quantity("40Gi")', ["old"]),
    "a minimum quantity": (f'device.capacity["{DRA}"].memory.compareTo(quantity("64Gi")) >= 0', ["new"]),
    "a version above another": (f'device.attributes["{DRA}"].driverVersion.isGreaterThan(semver("1.9.0"))', ["new"]),
    "a version below another": (f'device.attributes["{DRA}"].driverVersion.compareTo(semver("2.0.0")) < 0', ["old"]),
    "a number": (f'device.attributes["{DRA}"].numa < 1', ["old"]),
    "an optional attribute": (f'device.attributes["{DRA}"].?nvlink.orValue(false)', ["new"]),
    "a required attribute": (f'device.attributes["{DRA}"].?healthy.hasValue()', ["old"]),
    "has() on a domain": (f'has(device.attributes["{DRA}"].nvlink) && device.attributes["{DRA}"].nvlink', ["new"]),
    "in, on a domain": (f'"slots" in device.capacity["{DRA}"]', ["new"]),
    "a part of a name": (f'cel.bind(dra, device.attributes["{DRA}"], dra.model == "a100" && dra.healthy)', ["old"]),
    "a regular expression": (f'device.attributes["{DRA}"].model.matches("^[ah]100$")', ["old", "new"]),
    "one value of a list": (f'device.attributes["{DRA}"].model in ["h100", "h200"]', ["new"]),
}


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_selectors_as_documented(expression, expected):
    selector = f"selectors: [{{cel: {{expression: '{expression}'}}}}]"
    asked = claim("c", f"- {{name: r, exactly: {{deviceClassName: any, allocationMode: All, {selector}}}}}")
    where, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, MODELS), asked, pod("p", "c"))
    assert given["p"] == sorted(f"r={name}" for name in expected)
    assert (where["p"] == "n1") == bool(expected)


def test_a_missing_attribute_is_an_error_with_its_name():
    selector = f"selectors: [{{cel: {{expression: 'device.attributes[\"{DRA}\"].nvlink'}}}}]"
    asked = claim("c", f"- {{name: r, exactly: {{deviceClassName: any, {selector}}}}}")
    where, _ = run(nodes("n1"), device_class("any"), devices("n1", DRA, MODELS), asked, pod("p", "c"))
    assert "no such key: nvlink" in where["p"]


# -- constraints ----------------------------------------------------------------------------------------------------------


def numbered(driver: str, values: list[int]) -> str:
    return "\n".join(f"- name: d{at}\n  attributes: {{numa: {{int: {value}}}}}" for at, value in enumerate(values))


TWO = "- {name: a, exactly: {deviceClassName: any}}\n- {name: b, exactly: {deviceClassName: any}}"


@pytest.mark.parametrize(
    ("constraint", "values", "expected"),
    [
        ("matchAttribute", [0, 1, 1], ["a=d1", "b=d2"]),
        ("matchAttribute", [0, 1, 2], []),
        ("distinctAttribute", [0, 0, 1], ["a=d0", "b=d2"]),
        ("distinctAttribute", [1, 1, 1], []),
    ],
)
def test_devices_with_equal_or_distinct_values(constraint, values, expected):
    asked = claim("c", TWO, f"[{{requests: [a, b], {constraint}: {DRA}/numa}}]")
    _, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, numbered(DRA, values)), asked, pod("p", "c"))
    assert given["p"] == expected


# -- partitionable devices ------------------------------------------------------------------------------------------------

COUNTERS = "- name: gpu-1\n  counters: {memory: {value: 8Gi}}"


def partition(name: str, memory: str) -> str:
    return f"- name: {name}\n  consumesCounters: [{{counterSet: gpu-1, counters: {{memory: {{value: {memory}}}}}}}]\n"


def test_partitions_are_allocated_until_the_shared_counters_are_used_up():
    parts = partition("device-1", "6Gi") + partition("device-2", "6Gi") + partition("device-3", "2Gi")
    claims = [claim(f"c{at}", "- {name: r, exactly: {deviceClassName: any}}") for at in range(3)]
    pods = [pod(f"p{at}", f"c{at}") for at in range(3)]
    where, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, parts, COUNTERS), *claims, *pods)
    assert given == {"p0": ["r=device-1"], "p1": ["r=device-3"], "p2": []}
    assert "cannot allocate all claims" in where["p2"]


# -- consumable capacity --------------------------------------------------------------------------------------------------

ETHERNET = """
- name: eth1
  allowMultipleAllocations: true
  attributes: {name: {string: eth1}}
  capacity:
    bandwidth:
      value: 10G
      requestPolicy: {default: 1M, validRange: {min: 1M, step: "8"}}
"""


@pytest.mark.parametrize(("asked", "fit"), [("1G", 3), ("4G", 2), ("11G", 0), (None, 3)])
def test_shares_of_a_device_are_allocated_until_its_capacity_is_used_up(asked, fit):
    capacity = f", capacity: {{requests: {{bandwidth: {asked}}}}}" if asked else ""
    selector = "selectors: [{cel: {expression: device.allowMultipleAllocations}}]"
    shared = template("bandwidth", f"- {{name: r, exactly: {{deviceClassName: any, {selector}{capacity}}}}}")
    pods = [pod(f"p{at}", templates=("bandwidth",)) for at in range(3)]
    where, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, ETHERNET), shared, *pods)
    assert sum(node == "n1" for node in where.values()) == fit
    assert sum(got == ["r=eth1"] for got in given.values()) == fit


# -- taints ---------------------------------------------------------------------------------------------------------------

TAINTED = f"- name: gpu\n  taints: [{{key: {DRA}/unhealthy, value: Broken, effect: NoExecute}}]\n"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ("", False),
        (f"{{key: {DRA}/unhealthy, operator: Exists, effect: NoExecute}}", True),
        (f"{{key: {DRA}/unhealthy, operator: Equal, value: Broken}}", True),
        (f"{{key: {DRA}/unhealthy, operator: Equal, value: Hot}}", False),
        ("{operator: Exists}", True),
        ("{operator: Exists, effect: NoSchedule}", False),
    ],
)
def test_tainted_devices_go_to_claims_that_tolerate_them(toleration, fits):
    asked = claim("c", f"- {{name: r, exactly: {{deviceClassName: any, tolerations: [{toleration}]}}}}")
    where, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, TAINTED), asked, pod("p", "c"))
    assert (where["p"] == "n1", given["p"]) == (fits, ["r=gpu"] if fits else [])


# -- binding conditions ---------------------------------------------------------------------------------------------------


def test_a_device_attached_on_demand_is_awaited_and_bound_to_the_node():
    fabric = f"""
    - name: gpu-1
      bindsToNode: true
      bindingConditions: [{DRA}/is-prepared]
      bindingFailureConditions: [{DRA}/preparing-failed]
    """
    asked = claim("c", "- {name: r, exactly: {deviceClassName: any}}")
    where, given = run(nodes("n1"), device_class("any"), devices("n1", DRA, fabric), asked, pod("p", "c"))
    assert (where["p"], given["p"]) == ("n1", ["r=gpu-1"])


# -- extended resources ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_extended_resources_are_served_by_devices(resource):
    requests = f'{{requests: {{{resource}: "1"}}, limits: {{{resource}: "1"}}}}'
    where, given = run(
        nodes("n1"), device_class("gpu", more="extendedResourceName: example.com/gpu"), devices("n1", DRA, "- {name: gpu-1}"),
        pod("a", resources=requests), pod("b", resources=requests),
    )  # fmt: skip
    assert where["a"] == "n1"
    assert given["a"] == ["container-0-request-0=gpu-1"]
    assert "cannot allocate all claims" in where["b"]


def test_a_node_with_a_device_plugin_serves_them_itself():
    resource = "{requests: {example.com/gpu: '1'}, limits: {example.com/gpu: '1'}}"
    where, given = run(
        nodes("n1", allocatable="example.com/gpu: '1'"),
        device_class("gpu", more="extendedResourceName: example.com/gpu"), pod("a", resources=resource),
    )  # fmt: skip
    assert (where["a"], given["a"]) == ("n1", [])
