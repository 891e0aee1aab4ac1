"""What this process opens while it answers a request: an audit hook notes files by marks in their names, and connections."""

import json
import os
import sys
from contextlib import contextmanager

WORD = "swordfish-canary"
#: The port of the address that hostile values name. Nothing listens there.
PORT = 9


class _Watched:
    def __init__(self):
        self.marks, self.seen, self.on = (), [], False

    def hook(self, event, args):
        if not self.on:
            return
        if event == "socket.connect":
            if isinstance(args[1], tuple) and args[1][1] == PORT:
                self.seen.append((event, str(args[1])))
        elif event in {"open", "os.listdir", "os.scandir", "subprocess.Popen"} and args:
            path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else str(args[0])
            if any(mark in path for mark in self.marks):
                self.seen.append((event, path))


_WATCHED = _Watched()
sys.addaudithook(_WATCHED.hook)


@contextmanager
def watching(*marks):
    """Yield the list that gets what is opened in this block: paths with one of the marks, and the address of hostile values."""
    _WATCHED.marks, _WATCHED.seen, _WATCHED.on = marks, [], True
    try:
        yield _WATCHED.seen
    finally:
        _WATCHED.on = False


def hostile_names(folder):
    """Return values that name things of the server, each of a kind: files, a pipe, a device, addresses."""
    place = folder / "canary"
    place.mkdir()
    (place / "word.yaml").write_text(f"{WORD}: [\n{WORD}: {WORD}\n")
    (place / "types.json").write_text(json.dumps([{"name": WORD, "node": WORD}]))
    os.mkfifo(place / "pipe")
    return {
        "a file": str(place / "word.yaml"),
        "another file": str(place / "types.json"),
        "from the folder": "../canary/word.yaml",
        "a pipe": str(place / "pipe"),
        "a folder": str(place),
        "a device": "/dev/zero",
        "an address": f"http://127.0.0.1:{PORT}/canary",
        "a file's address": f"file://{place}/word.yaml",
        "standard input": "-",
    }


def marks_of(folder):
    """Return what the names of these things have in common."""
    return (str(folder / "canary"), "../canary", "/dev/zero")
