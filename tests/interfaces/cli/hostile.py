"""Hostile text, every place of a document where it can stand, and what must hold of all that is printed."""

from __future__ import annotations

import unicodedata

#: A colour, a title and a bell, the same in C1, an order of reading, no width, and lines that look like our own.
EVIL = "a\x1b[31m\x1b]0;t\a\x9b31m\x9d\u202eb\u2066\u200b\ufeff\u3164\u2028\u2029\x85c\rd\nFORGED: e\t\x7f"


def places(document, path="$"):
    """Yield every place of a document, and the document with hostile text there: in the place of a name or of a value."""
    if isinstance(document, dict):
        for key, value in document.items():
            here = f"{path}.{key}"
            yield f"{here} as a name", {EVIL if name == key else name: one for name, one in document.items()}
            for where, inside in places(value, here):
                yield where, {**document, key: inside}
    elif isinstance(document, list):
        for number, value in enumerate(document):
            for where, inside in places(value, f"{path}[{number}]"):
                yield where, [*document[:number], inside, *document[number + 1 :]]
    else:
        yield path, EVIL
        if isinstance(document, str):
            yield f"{path} in part", document + EVIL


def misleads(character):
    """Say whether a character can do more than be read, by Unicode's own tables: none of our code is asked."""
    return (unicodedata.category(character)[0] in "CZ" and character not in " \n\t") or character == "\u3164"


def check_harmless(*texts):
    """Make sure that texts steer no terminal, and that what was input began no line of them."""
    for text in texts:
        assert [character for character in text if misleads(character)] == [], ascii(text)
        assert "\nFORGED" not in f"\n{text}", ascii(text)
