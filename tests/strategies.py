"""Random nodes and pods for properties of many rules: small enough to clash, varied enough that every rule has its say."""

from __future__ import annotations

from hypothesis import strategies as st

from moorage.testing.builders import a_cluster, a_node, a_pod

__all__ = ["HOST", "ZONE", "clusters", "node", "pods", "template"]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

node = st.builds(
    lambda at, zone, disk, cpu, taint, off, image: a_node(
        f"n{at}",
        {HOST: f"n{at}", **({ZONE: zone} if zone else {}), **({"disk": disk} if disk else {})},
        allocatable={"cpu": cpu, "memory": "4Gi", "pods": 5},
        taints=[{"key": "t", "value": "v", "effect": taint}] if taint else [],
        unschedulable=off,
        images=[{"names": ["app:1"], "sizeBytes": 300_000_000}] if image else [],
    ),
    st.integers(0, 7), st.sampled_from(["a", "b", "c", ""]), st.sampled_from(["ssd", "hdd", ""]), st.integers(1, 4),
    st.sampled_from(["", "", "NoSchedule", "PreferNoSchedule"]), st.sampled_from([False, False, True]), st.booleans(),
)  # fmt: skip

selector = st.sampled_from([{"matchLabels": {"app": "x"}}, {"matchLabels": {"app": "y"}}])
where = st.sampled_from([{}, {}, {}, {"namespaceSelector": {"matchLabels": {"team": "x"}}}])
term = st.builds(
    lambda key, sel, spaces: {"topologyKey": key, "labelSelector": sel, **spaces},
    st.sampled_from([ZONE, HOST]),
    selector,
    where,
)
affinity = st.fixed_dictionaries(
    {},
    optional={
        "podAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.lists(term, max_size=1),
                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                    st.builds(lambda w, t: {"weight": w, "podAffinityTerm": t}, st.integers(1, 100), term), max_size=2
                ),
            },
        ),
        "podAntiAffinity": st.fixed_dictionaries(
            {}, optional={"requiredDuringSchedulingIgnoredDuringExecution": st.lists(term, max_size=1)}
        ),
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.builds(
                    lambda names: {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names
                        ]
                    },
                    st.lists(st.integers(0, 7).map(lambda at: f"n{at}"), min_size=1, max_size=2),
                ),
                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                    st.builds(
                        lambda w, v: {
                            "weight": w,
                            "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [v]}]},
                        },
                        st.integers(1, 100),
                        st.sampled_from(["ssd", "hdd"]),
                    ),
                    max_size=2,
                ),
            },
        ),
    },
)
spread = st.builds(
    lambda skew, key, when, sel: {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": sel},
    st.integers(1, 2), st.sampled_from([ZONE, HOST]), st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]), selector,
)  # fmt: skip
template = st.fixed_dictionaries(
    {
        "containers": st.builds(
            lambda cpu, port, image: [
                {
                    "name": "c",
                    "image": image,
                    "resources": {"requests": {"cpu": cpu} if cpu else {}},
                    "ports": [{"hostPort": port}] if port else [],
                }
            ],
            st.sampled_from(["", "100m", "500m", "1"]),
            st.sampled_from([0, 0, 0, 80]),
            st.sampled_from(["app:1", "other"]),
        ),
    },
    optional={
        "affinity": affinity,
        "topologySpreadConstraints": st.lists(spread, max_size=2),
        "tolerations": st.just([{"operator": "Exists"}]),
        "nodeSelector": st.sampled_from([{"disk": "ssd"}, {}]),
    },
)


@st.composite
def pods(draw, name="pod"):
    """A pod of any kind."""
    app = draw(st.sampled_from(["x", "y"]))
    priority = draw(st.sampled_from([0, 5]))
    return a_pod(name, {"app": app}, priority=priority, **draw(template))


@st.composite
def clusters(draw, max_nodes=8, max_pods=6):
    """A cluster of up to so many nodes, with pods anywhere on them, whether they fit or not."""
    nodes = draw(st.lists(node, min_size=1, max_size=max_nodes, unique_by=lambda n: n.name))
    cluster = a_cluster(nodes)
    for at in range(draw(st.integers(0, max_pods))):
        cluster.place(draw(pods(f"placed-{at}")), draw(st.sampled_from(nodes)).name)
    return cluster
