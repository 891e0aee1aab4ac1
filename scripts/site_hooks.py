"""Hooks of the documentation site: navigation from the first page, links out of the pages, redirects from former addresses."""

from __future__ import annotations

import html
import os
import re
import tomllib
from pathlib import Path
from typing import Any

#: Pages that a search shows first if they match.
_SOUGHT = ("start/install.md", "operate/explain-a-pending-pod.md")
_SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_PAGE = re.compile(r"^\* \[(?P<title>[^]]+)\]\((?P<path>[^)#]+\.md)\)", re.MULTILINE)
#: Pages that are tables of pages.
_LISTS = ("reference/plugins.md", "atlas/index.md")
_ROW = re.compile(r"^\| \[([^\]]+)\]\(((?:plugins/)?[\w-]+\.md)\)", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Make the navigation from the lists of docs/index.md, which a test holds complete."""
    docs = Path(config["docs_dir"])
    text = (docs / "index.md").read_text(encoding="utf-8")
    titles = list(_SECTION.finditer(text))
    ends = [*(title.start() for title in titles[1:]), len(text)]
    nav: list[dict[str, Any]] = [{"Home": "index.md"}]
    for title, end in zip(titles, ends, strict=True):
        pages = [page for page in _PAGE.finditer(text, title.end(), end) if not page["path"].startswith("..")]
        if pages:
            nav.append({title["title"]: [_entry(docs, page["title"], page["path"]) for page in pages]})
    config["nav"] = nav
    _name(config, docs.parent)
    return config


def _name(config: Any, root: Path) -> None:
    """Put the version beside the name, and name the repository."""
    module = (root / "src/moorage/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', module, re.MULTILINE)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert version is not None
    config["site_name"] = f"Moorage {version[1]}"
    config["copyright"] = f"Moorage {version[1]} · Apache-2.0"
    config["repo_url"] = project["tool"]["moorage"]["repository"]
    config["repo_name"] = "Repository"


def _entry(docs: Path, title: str, path: str) -> dict[str, Any]:
    """Return a page of the navigation; those that a page of lists leads to are below it."""
    if path not in _LISTS:
        return {_plain(title): path}
    folder = path.rpartition("/")[0]
    rows = _ROW.findall((docs / path).read_text(encoding="utf-8"))
    pages: dict[str, str] = {}
    for names, page in rows:
        pages.setdefault(f"{folder}/{page}", names)
    return {_plain(title): [path, *({names: page} for page, names in pages.items())]}


def moved_pages(docs: Path) -> dict[str, str]:
    """Return the addresses that pages had, each with the present one, relative to the folder of the pages."""
    moved: dict[str, str] = tomllib.loads((docs / "moved.toml").read_text(encoding="utf-8"))
    return moved


def redirect(old: str, new: str) -> str:
    """Return the page that stands at an old address: it leads to the new one and keeps the heading that was asked for."""
    to = html.escape(os.path.relpath(new.removesuffix(".md"), old.removesuffix(".md")) + "/")
    return (
        f'<!doctype html><meta charset="utf-8"><title>Moved</title><link rel="canonical" href="{to}">'
        f'<script>location.replace("{to}" + location.hash)</script>'
        f'<noscript><meta http-equiv="refresh" content="0; url={to}"></noscript><p><a href="{to}">This page has moved.</a>'
    )


def on_post_build(config: Any, **_: Any) -> None:
    """Write a page at each old address."""
    site = Path(config["site_dir"])
    for old, new in moved_pages(Path(config["docs_dir"])).items():
        folder = site / old.removesuffix(".md")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text(redirect(old, new), encoding="utf-8")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Show links to files outside the pages as their paths: the site has no copy of them."""
    if page.file.src_path in _SOUGHT:
        page.meta["search"] = {"boost": 4}
    docs = Path(config["docs_dir"])
    here = (docs / page.file.src_path).parent

    def link(found: re.Match[str]) -> str:
        target = (here / found["path"]).resolve()
        if target.is_relative_to(docs.resolve()) and not target.is_dir():
            return found[0]
        shown = target.relative_to(docs.resolve().parent) if target.is_relative_to(docs.resolve().parent) else found["path"]
        text = found["text"]
        return text if str(shown) in text else f"{text} (`{shown}`)"

    return _LINK.sub(link, markdown)


def _plain(title: str) -> str:
    return title[0].upper() + title[1:] if not title.startswith("moorage") else title
