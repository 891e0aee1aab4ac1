"""Every numeric field of every kind that the API server serves, in an object that is valid without it."""

import json

import yaml

from moorage.api.documents.served_kinds import KINDS
from moorage.api.schema.field_types import UNTYPED, ListOf, MapOf, Scalar, Struct
from moorage.api.schema.schemas import kind_schema
from tests.hostile_numbers import NUMBERS
from tools.attacks.objects import valid_object

#: Letters of scalars that a number can stand for: integers, floats, quantities, a number or a text, and raw JSON.
_NUMERIC = frozenset("ifQOR")
_MARK = "@number@"


def numeric_fields():
    """Return (kind, path) of each field; in a path 0 is an item of a list, and "k" a key of a map."""
    creatable = [kind for kind in KINDS if "create" in kind.verbs]
    return [(kind, path) for kind in creatable for path in _paths(kind_schema(kind), (), ())]


def name_of(kind, path):
    return f"{kind.group}/{kind.version}/{kind.kind} {'.'.join(map(str, path))}"


def url_of(kind):
    """Return where objects of the kind are created."""
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else "/api/v1"
    return f"{base}/namespaces/default/{kind.resource}" if kind.namespaced else f"{base}/{kind.resource}"


def body_of(kind, path, number, name, *, as_yaml=False):
    """Return an object as text, with a number in a field."""
    made = valid_object(kind, "default" if kind.namespaced else "", name)
    _put(made, path)
    if as_yaml:
        return yaml.safe_dump(made, sort_keys=False, width=1 << 20).replace(f"'{_MARK}'", NUMBERS[number])
    return json.dumps(made).replace(f'"{_MARK}"', NUMBERS[number])


def _paths(shape, path, seen):
    if isinstance(shape, Scalar):
        if shape.letter in _NUMERIC:
            yield path
    elif isinstance(shape, ListOf):
        yield from _paths(shape.item, (*path, 0), seen)
    elif isinstance(shape, MapOf):
        if shape is not UNTYPED:
            yield from _paths(shape.item, (*path, "k"), seen)
    elif isinstance(shape, Struct) and shape.name not in seen:
        for name, field in shape.fields.items():
            yield from _paths(field.type, (*path, name), (*seen, shape.name))


def _put(made, path):
    at = made
    for step, after in zip(path, [*path[1:], None], strict=True):
        key = next(iter(at), "cpu") if step == "k" else step
        if key == 0 and not at:
            at.append(None)
        if after is None:
            at[key] = _MARK
            return
        held = at[key] if isinstance(at, list) else at.get(key)
        if not isinstance(held, list if after == 0 else dict):
            held = at[key] = [] if after == 0 else {}
        at = held


# -- changes -------------------------------------------------------------------------------------------------------------

#: Form of a change → its media type.
FORMS = {
    "put": "application/json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def base_of(kind, name):
    return valid_object(kind, "default" if kind.namespaced else "", name)


def change_of(kind, path, number, form, name, version):
    """Return the method, the query and the body of a change that writes a number into a field of an object."""
    base = base_of(kind, name)
    made = base_of(kind, name)
    _put(made, path)
    if form == "put":
        if path != ("metadata", "resourceVersion"):
            made["metadata"]["resourceVersion"] = version
        sent = made
    elif form == "json":
        sent = [_operation(base, made)]
    elif form == "apply":
        sent = {**made, "apiVersion": kind.api_version, "kind": kind.kind}
    else:
        sent = _part(made, path)
    query = {"dryRun": "All", **({"fieldManager": "x", "force": "true"} if form == "apply" else {})}
    text = json.dumps(sent).replace(f'"{_MARK}"', NUMBERS[number])
    return "PUT" if form == "put" else "PATCH", query, text.encode()


def _part(made, path):
    """Return only what leads to the field; lists in full."""
    if not path or not isinstance(made, dict):
        return made
    key = next(key for key, inner in made.items() if _has_mark(inner)) if path[0] == "k" and "k" not in made else path[0]
    return {key: _part(made[key], path[1:])}


def _has_mark(value):
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value == _MARK or any(map(_has_mark, held))


def _way(value):
    """Return the path to the mark."""
    if value == _MARK:
        return ()
    key, inner = next(
        (key, one) for key, one in (value.items() if isinstance(value, dict) else enumerate(value)) if _has_mark(one)
    )
    return (key, *_way(inner))


def _operation(base, made):
    """Return the operation of a JSON patch that makes one object of the other."""
    at, inner, steps, is_there = base, made, [], True
    for step in _way(made):
        is_there = step in at if isinstance(at, dict) else isinstance(at, list) and step < len(at)
        inner = inner[step]
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
        if not is_there:
            break
        at = at[step]
    in_list = steps[-1].isdecimal() and is_there
    return {"op": "replace" if in_list else "add", "path": "/" + "/".join(steps), "value": inner}
