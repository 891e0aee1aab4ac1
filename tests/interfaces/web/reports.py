"""Report files for the tests of the page, with the documents that the commands print."""

import json
from contextlib import redirect_stdout, suppress
from functools import cache
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from moorage.interfaces.cli.main import main
from moorage.interfaces.web.bundle_files import bundle_text

EXAMPLES = Path(__file__).parents[3] / "examples"
DEMO = ("-f", str(EXAMPLES / "demo"))

#: Questions by the name of their report: one of each kind of answer, and two of a pod.
QUESTIONS = {
    "pending": ("explain", "search-2", *DEMO),
    "placed": ("explain", "search-0", *DEMO),
    "capacity": ("capacity", str(EXAMPLES / "capacity" / "job.yaml"), *DEMO, "--no-gains"),
    "plan": ("plan", "--consolidate", *DEMO),
    "drain": ("drain", "worker-3", "-f", str(EXAMPLES / "drain"), "--ignore-daemonsets"),
    "survive": ("survive", *DEMO, "--over", "zone"),
    "compare": (
        "compare",
        *DEMO,
        "--b",
        str(EXAMPLES / "config" / "most-allocated.yaml"),
        "--seeds",
        "1",
        "--fail-on",
        "pending > +0",
    ),
    "overview": ("report", *DEMO),
}


def document(name: str) -> dict[str, Any]:
    """Return the document that the command of a question prints."""
    return printed(*QUESTIONS[name])


@cache
def printed(*command: str) -> dict[str, Any]:
    out = StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        main([*command, "-o", "json", "-q"])
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def report(path: Path, value: dict[str, Any], **context: Any) -> Path:
    """Write a report file as the commands do."""
    blocks = block("moorage-document", value) + block("moorage-context", {"command": "moorage explain", **context})
    text = bundle_text("report.html").replace("<!--moorage-title-->", escape(value.get("summary", "")))
    path.write_text(text.replace("<!--moorage-document-->", blocks), "utf-8")
    return path


def block(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def renamed(value: Any, old: str, new: str) -> Any:
    """Return a copy of a document with a part of its strings replaced, in keys as well."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [renamed(one, old, new) for one in value]
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(one, old, new) for key, one in value.items()}
    return value
