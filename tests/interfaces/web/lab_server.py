"""A small server that speaks the page's side of /lab/v1 with data from a test: the page can be tested without a cluster."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from moorage.interfaces.web.atlas_route import atlas_document
from moorage.interfaces.web.bundle_files import LIVE_POLICY, bundle_file


class LabServer:
    """Serves the bundle, `snapshot`, what `answers` holds by method and path, and the events that `push` adds."""

    def __init__(self, snapshot: dict[str, Any], port: int = 0) -> None:
        self.snapshot = snapshot
        self.past: Callable[[float], dict[str, Any]] = lambda at: snapshot
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.status_of_snapshot = 200
        self.status_of_session = 204
        self._frames: list[bytes] = []
        self._more = threading.Condition()
        self._ended = False
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui/"

    def push(self, event: str, data: dict[str, Any]) -> None:
        with self._more:
            id_ = f"s.{len(self._frames) + 1}"
            body = json.dumps({"id": id_, "at": "", **data})
            self._frames.append(f"id: {id_}\nevent: {event}\ndata: {body}\n\n".encode())
            self._more.notify_all()

    def frames(self, after: int) -> tuple[list[bytes], bool]:
        """Wait for frames after the first `after`; also say whether the server ends."""
        with self._more:
            self._more.wait_for(lambda: len(self._frames) > after or self._ended, timeout=0.5)
            return self._frames[after:], self._ended

    def close(self) -> None:
        with self._more:
            self._ended = True
            self._more.notify_all()
        self._server.shutdown()
        self._server.server_close()


def _handler(lab: LabServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            file = bundle_file(path.removeprefix("/ui/")) if path.startswith("/ui/") else None
            if file is not None:
                self.reply(200, file[1], file[0])
            elif path == "/lab/v1/snapshot" and query.startswith("at="):
                self.answer(200, lab.past(float(query[3:])))
            elif path == "/lab/v1/snapshot":
                self.answer(lab.status_of_snapshot, lab.snapshot)
            elif path == "/lab/v1/events":
                self.stream(query)
            elif path == "/lab/v1/atlas":
                self.answer(200, atlas_document(parse_qs(query).get("event", [""])[0]))
            elif path.endswith("/cause") and f"GET {unquote(path)}" not in lab.answers:
                self.reply(204, b"", "")
            else:
                self.given(f"GET {unquote(path)}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            lab.asked.append((self.path, body))
            if self.path == "/lab/v1/session" and lab.status_of_session == 204:
                self.reply(204, b"", "")
            elif self.path == "/lab/v1/session":
                self.answer(lab.status_of_session, {})
            else:
                self.given(f"POST {self.path}")

        def do_DELETE(self) -> None:
            lab.asked.append((f"DELETE {self.path}", None))
            self.reply(204, b"", "")

        def given(self, key: str) -> None:
            found = lab.answers.get(key)
            if callable(found):
                found = found()
            if found is None:
                self.answer(404, {"kind": "Status", "message": "not found"})
            else:
                self.answer(found.get("_status", 200), {name: one for name, one in found.items() if name != "_status"})

        def answer(self, status: int, value: Any) -> None:
            if status != 200 and "kind" not in value:
                value = {"kind": "Status", "message": "Unauthorized"} if status == 401 else value
            self.reply(status, json.dumps(value).encode(), "application/json")

        def reply(self, status: int, body: bytes, media: str) -> None:
            self.send_response(status)
            if media:
                self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", LIVE_POLICY + "; require-trusted-types-for 'script'")
            self.end_headers()
            self.wfile.write(body)

        def stream(self, query: str) -> None:
            last = self.headers.get("Last-Event-ID") or dict(part.split("=") for part in query.split("&") if part).get(
                "after", ""
            )
            at = int(last.partition(".")[2] or 0)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self.wfile.write(b": connected\n\n")
                while True:
                    frames, ended = lab.frames(at)
                    if ended:
                        return
                    for frame in frames:
                        self.wfile.write(frame)
                    at += len(frames)
            except OSError:
                return

    return Handler
