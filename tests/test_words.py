"""The words of the project: marker words of unclear prose stay out of it, and every public class has a name of its own.

Each marker word stands for a construction that has to be read twice: a pronoun without an antecedent, a passive without an
actor, an archaism. Texts of Kubernetes are quoted word for word and are exempt.
"""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARKERS = (
    "anew", "nobody", "whoever", "somebody", "anybody", "everybody", "besides", "of old", "hangs on", "hang on", "is told",
    "are told", "be told", "was told", "were told", "that is none", "heard of", "hears of", "lets go", "let go of", "in vain",
    "for ever", "of its own accord", "goes by", "had better", "would rather", "by and by", "as good as", "on its way",
    "come to nothing",
)  # fmt: skip
MARKER = re.compile(rf"\b(?:{'|'.join(MARKERS)})\b", re.IGNORECASE)
SUFFIXES = {".py", ".md", ".json", ".yaml", ".yml", ".html", ".js", ".css", ".toml", ".txt", ""}
PLACES = (
    "src", "docs", "examples", "benchmarks", "scripts", "deploy", ".ci", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "SECURITY.md", "Makefile", "Containerfile", "tests",
)  # fmt: skip
#: Places whose texts are still to be rewritten. The list only shrinks.
PENDING: tuple[str, ...] = ()
#: Texts of Kubernetes, quoted word for word.
QUOTED: tuple[str, ...] = ()
#: This file names the words.
ITSELF = Path(__file__).name


def files():
    for place in PLACES:
        path = ROOT / place
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (
            one
            for one in found
            if one.is_file() and one.suffix in SUFFIXES and "__pycache__" not in one.parts and one.name != ITSELF
        )


def marked(path):
    text = path.read_text("utf-8")
    for quoted in QUOTED:
        text = text.replace(quoted, "")
    folded = text.lower()
    if not any(marker in folded for marker in MARKERS):  # a regular expression takes much longer
        return []
    return [(number, found) for number, line in enumerate(text.splitlines(), 1) for found in MARKER.findall(line)]


def is_pending(path):
    name = path.relative_to(ROOT).as_posix()
    return any(name == place or name.startswith(f"{place}/") for place in PENDING)


def test_no_text_has_a_marker_word():
    found = {path.relative_to(ROOT).as_posix(): words for path in files() if not is_pending(path) and (words := marked(path))}
    assert found == {}


#: Plugins and API objects that Kubernetes gives the same name.
NAMESAKES = {"NodeAffinity"}
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


def test_no_two_public_classes_share_a_name():
    places = defaultdict(set)
    for path in (ROOT / "src" / "moorage").rglob("*.py"):
        if path.is_relative_to(ROOT / "src/moorage/api") and not {"cel", "releases"} & set(path.parts):
            continue  # the kinds of Kubernetes and their parts
        for name in CLASS.findall(path.read_text("utf-8")):
            places[name].add(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in NAMESAKES} == {}
