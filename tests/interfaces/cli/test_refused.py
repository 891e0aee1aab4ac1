"""Which parameters go together: the rules in ``options/`` name parameters that there are, in words of the help page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from moorage.basis import table_of
from moorage.interfaces.cli import option_tables

_OPTIONS = Path(option_tables.__file__).parent / "options"
_RULES = [
    (table.stem, when)
    for table in sorted(_OPTIONS.glob("*.toml"))
    if table.stem != "shared"
    for when in table_of("moorage.interfaces.cli", f"options/{table.name}").get("refused", {})
]


@pytest.mark.parametrize(("table", "when"), _RULES)
def test_a_rule_names_parameters_of_its_command(table: str, when: str) -> None:
    shared = table_of("moorage.interfaces.cli", "options/shared.toml")
    parameters = {parameter.name for parameter in option_tables.parameters_of(table)}
    for term in re.split(", | or ", when):
        name = term.removeprefix("not ").partition("=")[0]
        assert name[1:] in shared["groups"] if name.startswith("@") else name in parameters


def _refused(given: dict[str, Any]) -> str:
    """Return the words in which `moorage simulate` refuses parameters; "" if it takes them."""
    try:
        option_tables._refuse("simulate", {"output": "table", "kueue": "auto", "paths": ("a",), **given})
    except option_tables.click.UsageError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"until": 0.0}, "--until needs --autoscale"),
        ({"until": 0.0, "autoscale": "karpenter"}, ""),
        ({"autoscale": "karpenter", "instance_types": "types"}, ""),
        ({"autoscale": "karpenter", "scaled": ("a=1",)}, "--autoscale excludes --explain, --live and changes to make first"),
        ({"trace": "openb", "paths": (), "pods": "p"}, ""),
        ({"config": "-", "paths": ("a", "-")}, "standard input can be read only once: use - for either --config or -f"),
        ({"since": "14:03", "kueue": "off"}, ""),
        ({"live": False, "context": "c"}, "add --live to ask the cluster that --kubeconfig or --context names"),
    ],
)
def test_a_rule_holds_if_all_its_parts_do(given: dict[str, Any], words: str) -> None:
    assert _refused(given) == words
