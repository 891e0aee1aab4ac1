"""The atlas of pending pods: a page for each situation, made by running Moorage on its smallest input.

``make atlas`` writes ``docs/atlas`` and the table by which ``moorage explain --event`` finds a page. What people wrote in
``atlas/situations.toml`` is the title, what not to do and the threads; the event, the cause and the commands are Moorage's
answer, and the release is that of the newest feature in ``atlas/releases.toml`` that the input or the event shows.
"""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

from moorage.laboratory.change.least_change import ChangeLimits
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.explain.explain_run import ExplainOptions, explain_cluster
from moorage.report.atlas import reasons_of
from moorage.simulator.simulate import Options

__all__ = ["DOCS", "SITUATIONS", "TABLE", "answer_to", "files", "page_of"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "atlas"
TABLE = ROOT / "src" / "moorage" / "report" / "atlas.json"
SITUATIONS = tomllib.loads((Path(__file__).parent / "atlas" / "situations.toml").read_text("utf-8"))["situation"]
FEATURES = tomllib.loads((Path(__file__).parent / "atlas" / "releases.toml").read_text("utf-8"))["feature"]
_THREAD = re.compile(r"(?P<repository>[^#/]+/[^#/]+)#(?P<number>[0-9]+)")
_COST = "`moorage explain` gives the cost of each change, and what else happens then."


@cache
def answer_to(name):
    """Return the explanation of a situation's pod."""
    (found,) = [one for one in SITUATIONS if one["name"] == name]
    given = read_given([f"{found['input']}\n"])
    limits = ChangeLimits(alternatives=2)
    return explain_cluster(given, Options(), ExplainOptions(asked=(found["pod"],), limits=limits))[0]


def features_of(situation):
    """Return what Kubernetes needs to have for a situation, the newest last."""
    message = answer_to(situation["name"]).message
    shown = [
        one for one in FEATURES
        if ("field" in one and re.search(one["field"], situation["input"]))
        or ("event" in one and re.search(one["event"], message))
        or situation["name"] in one.get("situations", ())
    ]  # fmt: skip
    return sorted(shown or FEATURES[:1], key=lambda one: release_of(one["since"]))


def release_of(text):
    """Return a release as a value that sorts: 1.10 after 1.9."""
    return tuple(map(int, text.split(".")))


def _cause(explanation):
    """Return the cause in one sentence, with what else is said of it."""
    first = explanation.summary.partition(": ")[2] or explanation.summary
    named = [f"{text[0].upper()}{text[1:]}".rstrip(".") for text in explanation.standing.causes]
    sentence = f"{first[0].upper()}{first[1:]}".rstrip(".")
    found = explanation.nearest.refusals if explanation.nearest is not None else ()
    nearest = [f"On {explanation.nodes[explanation.nearest.node]}: {one.detail}" for one in found if one.detail]
    return [sentence, *dict.fromkeys(one for one in (*named, *nearest) if one != sentence)]


def _do(explanation):
    """Return what to do: each change with its commands."""
    return [(" and ".join(atom.text for atom in one.atoms), one.commands) for one in explanation.changes]


def _threads(threads):
    for one in threads:
        found = _THREAD.fullmatch(one)
        if found is None:
            yield f"* <{one}>"
        else:
            yield f"* [{one}](https://github.com/{found['repository']}/issues/{found['number']})"


def page_of(situation):
    """Return the page of a situation."""
    explanation = answer_to(situation["name"])
    lines = [f"# {situation['title']}", ""]
    if explanation.message:
        lines += ["The event, as kube-scheduler words it:", "", "```text", explanation.message, "```", ""]
    else:
        lines += ["There is no event: no scheduler tries the pod.", ""]
    lines += ["## Cause", "", *(f"{text}.\n" for text in _cause(explanation)), "## What to do", ""]
    done = _do(explanation)
    for text, commands in done:
        lines += [f"* {text}", ""]
        lines += [part for command in commands for part in ("    ```bash", f"    {command}", "    ```", "")]
    if not done:
        waits = explanation.standing.ended_by
        ends = f"the wait ends by: {'; '.join(waits)}." if waits else "see the cause."
        lines += [f"No change of the cluster that makes sense helps; {ends}", ""]
    else:
        lines += [_COST, ""]
    lines += ["## What not to do", "", situation["avoid"], "", "## Try it", "", "```yaml"]
    lines += [*situation["input"].rstrip().splitlines(), "```", ""]
    lines += ["```bash", f"moorage explain -f cluster.yaml {situation['pod']}", "```", ""]
    newest = features_of(situation)[-1]
    what = f"{newest['name'][0].upper()}{newest['name'][1:]}"
    lines += ["## Since", "", f"Kubernetes {newest['since']}. {what}: [where that is written]({newest['source']}).", ""]
    if situation["threads"]:
        lines += ["## Where people asked", "", *_threads(situation["threads"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _index():
    lines = [
        "# Atlas of pending pods", "",
        "Why a pod is pending, by the event that it has. Each page is made by running Moorage on the smallest input that shows",
        "the situation, and the test suite holds it to that.", "",
        "`moorage explain --event \"0/5 nodes are available: ...\"` finds the pages for an event's text.", "",
        "| situation | event |", "|---|---|",
    ]  # fmt: skip
    for one in SITUATIONS:
        message = answer_to(one["name"]).message.partition(" preemption:")[0].replace("|", "\\|")
        lines.append(f"| [{one['title']}]({one['name']}.md) | {message or 'none'} |")
    return "\n".join(lines) + "\n"


def _table():
    entries = []
    for one in SITUATIONS:
        explanation = answer_to(one["name"])
        entries.append({
            "name": one["name"], "title": one["title"],
            "reasons": reasons_of(explanation.message), "event": explanation.message,
            "cause": _cause(explanation), "avoid": one["avoid"],
            "do": [{"text": text, "commands": list(commands)} for text, commands in _do(explanation)],
        })  # fmt: skip
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


def files():
    """Return every file that is made, by its path."""
    pages = {DOCS / f"{one['name']}.md": page_of(one) for one in SITUATIONS}
    return {DOCS / "index.md": _index(), **pages, TABLE: _table()}


if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    made = files()
    for left in set(DOCS.glob("*.md")) - made.keys():
        left.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
