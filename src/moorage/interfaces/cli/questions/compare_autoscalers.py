"""``moorage compare --b-autoscale``: autoscalers, NodePools or expanders against each other, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from moorage.api.documents.object_fields import seconds
from moorage.errors import InputError
from moorage.interfaces.cli.questions.question import Asked
from moorage.interfaces.cli.questions.simulate_autoscaled import (
    TEMPLATES_REMEDY,
    Autoscaler,
    AutoscalerOptions,
    autoscaler_of,
    kinds_of,
)
from moorage.laboratory.compare.typical_mix import is_bound_to_its_node, typical_mix, unplaced_copy
from moorage.laboratory.dynamics.node_scalers import compare_autoscalers
from moorage.laboratory.dynamics.pod_arrivals import Exponential, PodArrivals, PodKind, Poisson
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.report.explanation import AutoscalerComparison
from moorage.simulator.autoscalers.instance_types import read_price_list
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import STRICT_RULES, read

_KARPENTER = "karpenter"
#: The options that are part of the question.
_ASKED = (
    "a_autoscale", "b_autoscale", "a_nodepools", "b_nodepools", "a_expander", "b_expander", "until", "arrivals", "lifetime",
    "spot_interruptions", "karpenter_gates", "node_templates", "seeds",
)  # fmt: skip


def compares_autoscalers(given: Mapping[str, Any]) -> bool:
    """Return True if autoscalers are compared.

    Raises  UsageError for options that need one, or that do not go with it
    """
    sides = [given["a_autoscale"], given["b_autoscale"]]
    needing = (
        "a_nodepools",
        "b_nodepools",
        "a_expander",
        "b_expander",
        "instance_types",
        "arrivals",
        "karpenter_gates",
        "node_templates",
    )
    if not any(sides):
        alone = next((name for name in needing if given[name]), None)
        if alone is not None:
            raise click.UsageError(f"--{alone.replace('_', '-')} needs --a-autoscale or --b-autoscale")
        return False
    others = ("a_config", "b_config", "a_release", "b_release", "a_kueue", "b_kueue", "b_paths", "gates", "baseline")
    clash = next((name for name in others if given[name]), None)
    if clash is not None or given["output"] not in {"text", "wide", "json", "yaml"}:
        what = f"-o {given['output']}" if clash is None else f"--{clash.removesuffix('_config').replace('_', '-')}"
        raise click.UsageError(f"--a-autoscale and --b-autoscale exclude {what}")
    return True


def autoscaler_kinds(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds that the autoscalers of both sides read."""
    return tuple(dict.fromkeys(kind for side in "ab" for kind in kinds_of(_which(given, side))))


def _which(given: Mapping[str, Any], side: str) -> str:
    return str(given[f"{side}_autoscale"] or given["a_autoscale"] or given["b_autoscale"])


def scaling_answer(given: Mapping[str, Any], asked: Asked) -> AutoscalerComparison:
    """Run both sides on the same arrivals, seed by seed.

    Raises  InputError
    """
    cluster = asked.changed_input
    shapes = typical_mix([pod for pod in cluster.pods if not is_bound_to_its_node(pod)]) if given["arrivals"] else []
    if given["arrivals"] and not shapes:
        raise InputError("--arrivals: the cluster has no pods that others could be like")
    kinds = [PodKind(unplaced_copy(shape.pod, "like"), shape.weight, given["lifetime"]) for shape in shapes]
    missing: dict[str, None] = {}

    def arrange(side: str, seed: int) -> tuple[Simulation, Autoscaler]:
        simulation = Simulation(cluster, replace(asked.changed_options, seed=seed))
        scaler = simulation.use(_scaler(given, side, cluster))
        if kinds:
            simulation.use(PodArrivals(Poisson(given["arrivals"]), kinds, lifetime=Exponential(given["lifetime"])))
        missing.update(dict.fromkeys(scaler.missing))
        return simulation, scaler

    first = asked.changed_options.seed
    found = compare_autoscalers(
        lambda seed: arrange("a", seed), lambda seed: arrange("b", seed), until_s=given["until"],
        seeds=range(first, first + given["seeds"]),
    )  # fmt: skip
    currency = read_price_list(given["instance_types"]).currency if given["instance_types"] else ""
    question = {key: given[key] for key in _ASKED if given[key]}
    names = _name(given, "a"), _name(given, "b")
    return AutoscalerComparison.of(asked.request(question), found, names, currency, tuple(missing))


def _name(given: Mapping[str, Any], side: str) -> str:
    parts = [_which(given, side), given[f"{side}_nodepools"] or "", given[f"{side}_expander"]]
    return " ".join(part.rpartition("/")[2] for part in parts if part)


def _scaler(given: Mapping[str, Any], side: str, cluster: ClusterInput) -> Autoscaler:
    which, pools = _which(given, side), given[f"{side}_nodepools"]
    documents, components = [held.document for held in cluster.custom], cluster.components
    if pools:
        if which != _KARPENTER:
            raise click.UsageError(f"--{side}-nodepools needs --{side}-autoscale karpenter")
        found = read([pools], custom=kinds_of(_KARPENTER), rules=STRICT_RULES)
        documents = [held for held in documents if held.get("kind") != "NodePool"] + [held.document for held in found.custom]
        components = found.components or components
    asked = AutoscalerOptions(
        which, given[f"{side}_expander"], None, given["instance_types"], given["spot_interruptions"],
        gates=given["karpenter_gates"], templates=given["node_templates"],
    )  # fmt: skip
    taken_s = seconds(cluster.report.taken_at) or 0.0
    return autoscaler_of(asked, documents, cluster.nodes, taken_s, components, remedy=TEMPLATES_REMEDY)
