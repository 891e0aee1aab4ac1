"""Write the parts of pages that come from the code: options of commands, fields of documents, tables of rules and of kinds.

A part stands between two comments, of which the first says what it is, as ``<!-- make reference: options explain -->``.
``python -m tools.reference_parts`` writes all parts; with ``--check`` it names the pages that are not those of now, and exits
with 1.
``reference_parts.toml`` has the pages that parts link to.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from moorage.api import kinds as api_kinds
from moorage.api.documents import served_kinds
from moorage.api.feature_gates import FeatureGates
from moorage.api.kinds import Reader
from moorage.api.releases import LEGACY, RELEASES, TODAY, Release
from moorage.api.releases.metrics import Spec, metrics_of
from moorage.api.releases.release_gates import gates_table
from moorage.cluster.controllers.all_controllers import all_controllers, named_controllers
from moorage.core.config.release_plugins import default_plugins
from moorage.core.config.upgrade import all_changes
from moorage.framework import points as framework_points
from moorage.interfaces.cli.option_tables import own_parameters, parameters_of, purpose_of, shared_parameters
from moorage.laboratory.costs import BASE_COSTS, CHANGES, UNDONE
from moorage.plugins import builtin_registry
from tools.plugin_types import first_paragraph, signature_of

_SOURCE: Final = Path(__file__).parents[1] / "src" / "moorage"
DOCS: Final = Path(__file__).parents[1] / "docs"
_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_LINKS: Final[Mapping[str, str]] = _TABLE["links"]
PART: Final = re.compile(
    r"(?<=^<!-- make reference: )(?P<what>[^\n]+)(?P<open> -->\n)(?P<text>.*?)(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL
)


def with_parts(text: str) -> str:
    """Return a page with its parts as the code has them now.

    Raises  KeyError if a part is of no known kind
    """

    def written(found: re.Match[str]) -> str:
        kind, _, words = found["what"].partition(" ")
        return f"{found['what']}{found['open']}\n{KINDS[kind](words).strip()}\n\n"

    return PART.sub(written, text)


def by_hand(text: str) -> str:
    """Return a page without its parts."""
    return PART.sub(lambda found: found["what"] + found["open"], text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(
        "|" + "|".join("---" if cell == "---" else f" {_cell(cell)} " if cell else " " for cell in line) + "|" for line in lines
    )


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def options(words: str) -> str:
    """Return the options of a command that are its own; of ``shared GROUP …`` those of groups; of ``all COMMAND`` all."""
    first, *rest = words.split()
    if first == "shared":
        found = [one for group in rest for one in shared_parameters(group)]
    else:
        found = parameters_of(rest[0]) if first == "all" else own_parameters(first)
    shown = [one for one in found if isinstance(one, click.Option)]
    return table(["option", "meaning"], ((_written(one), _meaning(one, first)) for one in shown))


def _written(one: click.Option) -> str:
    value = "" if one.is_flag else f" {one.metavar or _values(one) or _sort(one)}"
    *first, last = [*one.opts, *one.secondary_opts]
    return ", ".join([*(f"`{form}`" for form in first), f"`{last}{value}`"])


def _values(one: click.Option) -> str:
    return "|".join(one.type.choices) if isinstance(one.type, click.Choice) and len(one.type.choices) <= 6 else ""


def _sort(one: click.Option) -> str:
    """Return the word for a value without a name of its own: ``N`` for numbers."""
    return "N" if isinstance(one.type, (click.types.IntParamType, click.types.FloatParamType)) else str(one.type.name).upper()


def _meaning(one: click.Option, command: str) -> str:
    text = (one.help or "").replace("\n", " ").strip()
    text = re.sub(
        r" +\[([^\]]*)\]\.?",
        lambda found: f"{'' if found.start() and text[found.start() - 1] == '.' else '.'} Without it: {found[1]}.",
        text,
    )
    text = re.sub(r"(?<![\w`-])(--?[a-z][a-z-]*)(?![\w-])", r"`\1`", text)
    if isinstance(one.type, click.Choice) and not _values(one) and not one.metavar:
        text += f" One of {', '.join(f'`{choice}`' for choice in one.type.choices)}."
    return text + _default(one) + (_more(f"{command}.{one.name}") or _more(one.name or ""))


def _default(one: click.Option) -> str:
    if not one.show_default or one.is_flag or one.default in (None, "", ()):
        return ""
    given = one.default if isinstance(one.default, (list, tuple)) else [one.default]
    return f" Without it: {', '.join(f'{value:g}' if isinstance(value, float) else str(value) for value in given)}."


def _more(name: str) -> str:
    return f" See {_LINKS[name]}." if name in _LINKS else ""


def fields(words: str) -> str:
    """Return the fields of a document, or of a part of it: ``plan``, ``plan answer``, as its JSON Schema describes them."""
    name, *rest = words.split()
    schema = json.loads((DOCS / "reference" / f"{name}.schema.json").read_text(encoding="utf-8"))
    where = schema["$defs"][rest[0]] if rest else schema
    told = set(re.findall(rf"make reference: fields {name} (\w+) -->", _all_pages()))
    rows = [(f"`{key}`", _said(one, schema, told)) for key, one in where["properties"].items()]
    alike = [(said, [key for key, _ in found]) for said, found in groupby(rows, key=lambda row: row[1])]
    return table(["field", "meaning"], ((", ".join(keys), said) for said, keys in alike))


def _all_pages() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md")))


def _said(one: Mapping[str, Any], schema: Mapping[str, Any], told: set[str]) -> str:
    """Return what the schema says of a field, its values, and what its parts are, unless a page describes them."""
    target = one
    parts = [one.get("description", "")]
    for _ in range(4):
        if "$ref" in target:
            name = target["$ref"].rpartition("/")[2]
            if name in told:
                break
            target = schema["$defs"][name]
            parts.append("" if parts[0] else target.get("description", ""))
        elif "items" in target:
            target = target["items"]
        elif isinstance(target.get("additionalProperties"), dict):
            target = target["additionalProperties"]
        else:
            break
    if "const" in target:
        parts.append(f"`{target['const']}`.")
    if "enum" in target and not all(f"`{value}`" in parts[0] for value in target["enum"]):
        parts.append(f"One of {', '.join(f'`{value}`' for value in target['enum'] if value)}.")
    if "properties" in target:
        parts.append("; ".join(_part(key, value) for key, value in target["properties"].items()) + ".")
    return " ".join(filter(None, parts))


def _part(key: str, one: Mapping[str, Any]) -> str:
    said = one.get("description", "").rstrip(".")
    return f"`{key}`: {said[:1].lower() + said[1:]}" if said else f"`{key}`"


def changes(_: str) -> str:
    """Return the changes with their kind, effort, how they are undone, and the costs of those two."""
    rows = []
    for kind, verbs in CHANGES["kinds"].items():
        for verb in verbs:
            how, effort = UNDONE[verb], BASE_COSTS[f"effort.{verb}"]
            rows.append((f"`{kind}`", f"`{verb}`", _shape(CHANGES["words"].get(verb, "")), f"{effort:g}", how))
    return table(["kind", "verb", "in words", "effort", "undone by"], rows)


def _shape(words: str) -> str:
    """Return the text of a change with words in capitals for its parts."""
    return re.sub(
        r"\{(\w+)\}", lambda found: {"moved": "FIELD OLD → NEW", "last": "NAME"}.get(found[1], found[1].upper()), words
    )


def factors(_: str) -> str:
    """Return what changes cost besides their effort."""
    groups = groupby(CHANGES["costs"].items(), key=lambda row: row[0].partition(".")[0])
    return table(
        ["names", "cost"],
        (
            (", ".join(f"`{name}`" for name, _ in rows), ", ".join(f"{cost:g}" for _, cost in rows))
            for rows in (list(found) for _, found in groups)
        ),
    )


def left_out(_: str) -> str:
    """Return why changes are left out."""
    return table(["reason", "why"], ((f"`{name}`", f"{text}") for name, text in CHANGES["left_out"].items()))


def points(_: str) -> str:
    """Return the methods that a plugin may have, by extension point."""
    at = {method: point for point, methods in framework_points.POINTS.items() for method in methods}
    at |= {
        "add_pod": "preFilter",
        "remove_pod": "preFilter",
        "normalize": "score",
        "normalize_over": "score",
        "unreserve": "reserve",
    }
    at |= {"pod_group_post_filter": "postFilter", "placement_feasible": "postFilter", "normalize_placements": "placementScore"}
    found = []
    for name in framework_points.__all__:
        cls = getattr(framework_points, name)
        if not (isinstance(cls, type) and framework_points.Plugin in cls.__mro__[1:]):
            continue
        methods = [one for one in vars(cls) if one in cls.__abstractmethods__]  # type: ignore[attr-defined]
        shown = ", ".join(
            f"`{one}{signature_of(vars(cls)[one]) if inspect.isfunction(vars(cls)[one]) else ''}`" for one in methods
        )
        found.append((at.get(methods[0], "all"), f"`{name}`", shown, first_paragraph(cls)))
    order = [*framework_points.POINTS, "all"]
    found.sort(key=lambda row: order.index(row[0]))
    return table(
        ["point", "Protocol", "method", "what it does"], ((f"`{at}`" if at != "all" else at, *rest) for at, *rest in found)
    )


def members(words: str) -> str:
    """Return methods of a class, or functions of a module, with what their docstrings say: ``PLACE NAME …``."""
    place, *names = words.split()
    module, _, name = place.rpartition(".")
    owner = getattr(importlib.import_module(module), name)
    return table(
        ["call", "what it does"],
        (
            (f"`{one}{signature_of(getattr(owner, one))}`", first_paragraph(getattr(owner, one)) + _more(f"{name}.{one}"))
            for one in names
        ),
    )


def plugins(_: str) -> str:
    """Return the built-in plugins with what they do, their extension points, and the weights of the default profile."""
    registry = builtin_registry(TODAY)
    open_gates = FeatureGates.parse("AllAlpha=true,AllBeta=true")
    weights = {one.name: one.weight for one in default_plugins(open_gates)}
    rows = []
    for name in sorted(registry.points()):
        module = _module_of(name)
        about = (inspect.getdoc(module) or "").splitlines()[0].partition(": ")[2]
        page = module.__name__.rpartition(".")[2]
        points = registry.points()[name]
        gated = "" if name in {one.name for one in default_plugins(FeatureGates())} else " Behind a gate."
        weight = str(weights.get(name) or 1) if {"score", "placementScore"} & {*points} else ""
        rows.append(
            (
                f"[{name}](plugins/{page}.md)",
                about.replace("``", "`") + gated,
                ", ".join(f"`{point}`" for point in points),
                weight,
            )
        )
    return table(["plugin", "what it does", "extension points", "default weight"], rows)


def _module_of(plugin: str) -> ModuleType:
    """Return the module of a built-in plugin; variants for single releases have modules of their own."""
    return importlib.import_module(f"moorage.plugins.{re.sub(r'(?<!^)(?=[A-Z])', '_', plugin).lower()}")


def plugin(name: str) -> str:
    """Return the points and arguments of a built-in plugin, and what its module says that it reads, wakes on and comes from."""
    registry = builtin_registry(TODAY)
    weight = {one.name: one.weight for one in default_plugins(FeatureGates())}.get(name)
    points = ", ".join(f"`{point}`" for point in registry.points()[name])
    if weight:
        points += f"; score with weight {weight} by default"
    arguments = getattr(registry.args_type(name), "__struct_encode_fields__", ())
    rows = [("Extension points", points), ("Arguments", ", ".join(f"`{one}`" for one in arguments) or "none")]
    told = re.findall(
        r"^(Reads|Wakes on|Source) +((?:.|\n +)+)",
        inspect.getdoc(_module_of(name)) or "",
        re.MULTILINE,
    )
    return table(["", ""], [*rows, *((label, text.replace("``", "`")) for label, text in told)])


def default_order(_: str) -> str:
    """Return the default plugins in the order in which they run."""
    return ", ".join(one.name for one in default_plugins(FeatureGates())) + "."


def kinds(_: str) -> str:
    """Return the kinds that the embedded API server serves."""
    served = [*served_kinds.KINDS, *served_kinds.VERSIONS, *served_kinds.MEASURED]
    by_version: dict[str, list[str]] = {}
    for kind in served:
        subresources = f" ({', '.join(sorted(kind.subresources))})" if kind.subresources else ""
        gate = f" with `{kind.gate}`" if kind.gate and "/" not in kind.gate else ""
        by_version.setdefault(kind.api_version, []).append(f"`{kind.kind}`{subresources}{gate}")
    for review in served_kinds.REVIEWS:
        by_version.setdefault(review.api_version, []).append(f"`{review.kind}`, answered and not stored")
    rows = sorted(
        by_version.items(),
        key=lambda row: ("/" in row[0], row[0].partition("/")[0], served_kinds.version_priority(row[0].rpartition("/")[2])),
    )
    return table(["group and version", "kinds"], ((f"`{version}`", ", ".join(kinds)) for version, kinds in rows))


def watched(words: str) -> str:
    """Return the requests by which a scheduler reads the kinds that it follows: the verbs, and the test that holds them."""
    *verbs, test = words.split()
    gates = FeatureGates()
    found = [kind for kind in api_kinds.KINDS if kind.readers & Reader.SCHEDULER and (not kind.gate or gates[kind.gate])]
    paths = [f"/{'apis' if kind.group else 'api'}/{kind.api_version}/{kind.resource}" for kind in found]
    return table(["request", "test"], ((f"`{verb} {path}`", f"`{test}`") for path in paths for verb in verbs))


def commands(_: str) -> str:
    """Return the pages of commands, each with what its help says first."""
    lines = []
    for path in sorted((DOCS / "reference").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        name = path.stem
        if not title.startswith("moorage ") or name in _TABLE["elsewhere"]:
            continue
        lines.append(f"* [{title}](reference/{path.name}): {purpose_of(name).rstrip('.')}")
    return "\n".join(lines)


def floors(_: str) -> str:
    """Return the pages of the floors, each with what its package says first."""
    packages = [
        path for path in sorted(_SOURCE.glob("*/__init__.py")) if (DOCS / "contribute" / f"{path.parent.name}.md").is_file()
    ]
    return "\n".join(
        f"* [The floor {path.parent.name}](contribute/{path.parent.name}.md): {_says(path).rstrip('.')}" for path in packages
    )


def rooms(_: str) -> str:
    """Return the packages inside each floor, with what they say first."""
    packages = [path for path in sorted(_SOURCE.glob("*/*/__init__.py")) if path.parent.parent.name != "testing"]
    return table(["room", "what is in it"], ((f"`{path.parent.relative_to(_SOURCE)}`", _says(path)) for path in packages))


def _says(module: Path) -> str:
    """Return the first sentence of a module."""
    first = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    return " ".join(first.replace("``", "`").split())


def controllers(_: str) -> str:
    """Return the controllers of the embedded cluster by their names, with what their modules say first."""
    found = [
        (sys.modules[type(one).__module__], name)
        for one, name in named_controllers(all_controllers(gates=FeatureGates({"GenericWorkload": True})))
    ]
    rows = []
    for module in dict.fromkeys(module for module, _ in found):
        said = (inspect.getdoc(module) or "").partition("\n\n")[0].partition(": ")
        text = said[2] if said[0].lower().startswith("the ") and " controller" in said[0] else "".join(said)
        rows.append(
            (", ".join(f"`{name}`" for one, name in found if one is module), (text[:1].upper() + text[1:]).replace("\n", " "))
        )
    return table(["controllers", "what they do"], rows)


def releases(_: str) -> str:
    """Return the versions that can be emulated."""
    rows = []
    for series, found in groupby([*RELEASES.values()][::-1], key=lambda one: one.series):
        newest, *others = list(found)
        rules = LEGACY[-1] if newest in LEGACY else newest
        rows.append((f"`{series}`", rules.patch or rules.name, ", ".join(f"`{one.name}`" for one in others)))
    return table(["`--emulate`", "decides as", "also known"], rows)


def rules(_: str) -> str:
    """Return what plugins and the queue do since which release: the texts of ``moorage compare`` and ``config convert``."""
    return table(
        ["up to", "later", "source"],
        ((ended, text if name.islower() else f"{name} {text}", source) for ended, name, text, source in all_changes()),
    )


def gates(_: str) -> str:
    """Return the feature gates that change decisions, and what they were in which release."""
    rows = ((f"`{name}`", history) for name, history in gates_table()["deciding"].items())
    return table(["gate", "from release"], rows)


def metrics(_: str) -> str:
    """Return how the metrics of each release differ from those of the release after it."""
    series = [*{one.series: one for one in RELEASES.values()}.values()]
    rows = []
    for older, newer in zip(reversed(series[:-1]), reversed(series[1:]), strict=True):
        said = "; ".join(_differing(_shown_in(older), _shown_in(newer)))
        rows.append((older.series, said)) if said else None
    return table(["up to", "in place of what the release after it has"], rows)


def _shown_in(release: Release) -> Mapping[str, Spec]:
    return {name.removeprefix("scheduler_"): one for name, one in metrics_of(release.name).items() if not one.hidden}


def _differing(older: Mapping[str, Spec], newer: Mapping[str, Spec]) -> Iterator[str]:
    gone, only = sorted(newer.keys() - older.keys()), sorted(older.keys() - newer.keys())
    if gone:
        yield f"no {', '.join(f'`{name}`' for name in gone)}"
    yield from (
        f"also `{name}`" + (f", deprecated since {older[name].deprecated}" if older[name].deprecated else "") for name in only
    )
    both = sorted(older.keys() & newer.keys())
    for stability, names in groupby(
        sorted(both, key=lambda name: older[name].stability), key=lambda name: older[name].stability
    ):
        changed = [name for name in names if newer[name].stability != stability]
        if changed:
            yield f"{stability}: {', '.join(f'`{name}`' for name in changed)}"
    for name in both:
        if older[name].labels != newer[name].labels:
            yield f"labels of `{name}`: {', '.join(f'`{label}`' for label in older[name].labels) or 'none'}"
        if older[name].buckets != newer[name].buckets:
            yield f"other buckets of `{name}`"


KINDS: Final[Mapping[str, Callable[[str], str]]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        changes,
        commands,
        controllers,
        default_order,
        factors,
        fields,
        floors,
        gates,
        kinds,
        left_out,
        members,
        metrics,
        options,
        plugin,
        plugins,
        points,
        releases,
        rooms,
        rules,
        watched,
    )
}


def pages() -> Iterator[Path]:
    """Yield the pages that have such parts."""
    yield from (path for path in sorted(DOCS.rglob("*.md")) if PART.search(path.read_text(encoding="utf-8")))


def main(words: list[str]) -> int:
    """Write or check the parts; return the exit status."""
    old = 0
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (now := with_parts(text)) == text:
            continue
        if "--check" in words:
            sys.stdout.write(f"{path.relative_to(DOCS)}: not the parts of now; run make reference\n")
            old = 1
        else:
            path.write_text(now, encoding="utf-8")
    return old


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
