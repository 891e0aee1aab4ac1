"""Hooks of the documentation site: navigation from the first page, and links to files of the project outside the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_PAGE = re.compile(r"^\* \[(?P<title>[^]]+)\]\((?P<path>[^)#]+\.md)\)", re.MULTILINE)
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
            nav.append({title["title"]: [{_plain(page["title"]): page["path"]} for page in pages]})
    config["nav"] = nav
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Show links to files outside the pages as their paths: the site has no copy of them."""
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
