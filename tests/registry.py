"""A registry of images for tests: the distribution specification 1.1 with the referrers API, in memory, on loopback.

It does what its clients need and is checked by running other people's clients against it
(``tests/integration/publish``). What a test wants to go wrong it says with ``Registry.script``: a function that
sees each request first and may answer it itself.
"""

# ruff: noqa: ARG002 - every route is called with the same arguments
from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import re
import secrets
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
_NAME = r"(?P<name>[a-z0-9._/-]+)"
_ROUTES: tuple[tuple[str, str], ...] = (
    ("base", r"/v2/"),
    ("token", r"/token"),
    ("uploads", rf"/v2/{_NAME}/blobs/uploads/"),
    ("upload", rf"/v2/{_NAME}/blobs/uploads/(?P<what>[0-9a-f]+)"),
    ("blob", rf"/v2/{_NAME}/blobs/(?P<what>sha256:[0-9a-f]{{64}})"),
    ("manifest", rf"/v2/{_NAME}/manifests/(?P<what>[A-Za-z0-9_.:-]+)"),
    ("referrers", rf"/v2/{_NAME}/referrers/(?P<what>sha256:[0-9a-f]{{64}})"),
    ("tags", rf"/v2/{_NAME}/tags/list"),
)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry:
    """What the registry holds, and how it behaves."""

    def __init__(
        self,
        *,
        auth: str = "",
        referrers_api: bool = True,
        heeds_if_match: bool = True,
        page: int = 100,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.auth = auth
        """``basic``, ``bearer`` or nothing."""
        self.referrers_api = referrers_api
        self.heeds_if_match = heeds_if_match
        self.page = page
        self.users = dict(users or {"tester": "s3cret"})
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.uploads: dict[str, bytearray] = {}
        self.tokens: dict[str, set[str]] = {}
        self.log: list[tuple[str, str]] = []
        self.script: Callable[[Handler], bool] | None = None
        self.lock = threading.RLock()
        self.host = ""

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Requests that change something."""
        return [item for item in self.log if item[0] not in {"GET", "HEAD"}]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def _serve(self) -> None:
        self.body: bytes | None = None
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query))
        with self.registry.lock:
            self.registry.log.append((self.command, self.path))
        if self.registry.script is not None and self.registry.script(self):
            return
        matches = ((kind, re.fullmatch(pattern, parts.path)) for kind, pattern in _ROUTES)
        kind, match = next(((kind, match) for kind, match in matches if match), ("", None))
        if match is None:
            self.read_body()
            self.answer(404, error="NOT_FOUND")
            return
        found = match.groupdict()
        name, what = found.get("name", ""), found.get("what", "")
        if kind != "token" and not self._allowed(name):
            return
        data = self.read_body()
        with self.registry.lock:
            method = getattr(self, f"_{self.command.lower()}_{kind}", None)
            if method is None:
                self.answer(405, error="UNSUPPORTED")
                return
            method(name, what, data)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    def read_body(self) -> bytes:
        if self.body is None:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                self.body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    self.body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self.body

    def answer(
        self, status: int, body: bytes = b"", *, error: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        more = dict(headers or {})
        if error:
            body = json.dumps(
                {"errors": [{"code": error, "message": error.lower().replace("_", " ")}]}
            ).encode()
            more.setdefault("Content-Type", "application/json")
        self.send_response(status)
        for key, value in more.items():
            self.send_header(key, value)
        if "Content-Length" not in more and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # Authorization

    def _allowed(self, name: str) -> bool:
        kind = self.registry.auth
        said = self.headers.get("Authorization", "")
        if kind == "basic":
            if self._user(said):
                return True
            self._challenge('Basic realm="tests"')
            return False
        if kind == "bearer":
            action = "pull" if self.command in {"GET", "HEAD"} and "/uploads/" not in self.path else "push"
            scopes = self.registry.tokens.get(said.removeprefix("Bearer "), set())
            if f"{name}:{action}" in scopes or (
                not name and said.removeprefix("Bearer ") in self.registry.tokens
            ):
                return True
            scope = f',scope="repository:{name}:pull,push"' if name else ""
            self._challenge(f'Bearer realm="http://{self.registry.host}/token",service="tests"{scope}')
            return False
        return True

    def _challenge(self, text: str) -> None:
        self.read_body()
        self.answer(401, error="UNAUTHORIZED", headers={"WWW-Authenticate": text})

    def _user(self, header: str) -> str:
        if not header.startswith("Basic "):
            return ""
        user, _, password = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
        return user if self.registry.users.get(user) == password else ""

    def _token(self, user: str, scopes: list[str]) -> None:
        granted: set[str] = set()
        for scope in " ".join(scopes).split():
            _, name, actions = scope.split(":")
            granted |= {f"{name}:{action}" for action in actions.split(",") if user or action == "pull"}
        token = secrets.token_hex(16)
        self.registry.tokens[token] = granted
        body = json.dumps({"token": token, "expires_in": 300}).encode()
        self.answer(200, body, headers={"Content-Type": "application/json"})

    def _get_token(self, name: str, what: str, data: bytes) -> None:
        said = self.headers.get("Authorization", "")
        user = self._user(said)
        if said and not user:
            self.answer(401, error="UNAUTHORIZED")
            return
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        self._token(user, query.get("scope", []))

    def _post_token(self, name: str, what: str, data: bytes) -> None:
        form = urllib.parse.parse_qs(data.decode())
        if form.get("grant_type") == ["refresh_token"]:
            user = next(
                (key for key, value in self.registry.users.items() if [value] == form["refresh_token"]), ""
            )
        else:
            user, password = form["username"][0], form["password"][0]
            user = user if self.registry.users.get(user) == password else ""
        if not user:
            self.answer(401, error="UNAUTHORIZED")
            return
        self._token(user, form.get("scope", []))

    # Blobs

    def _get_base(self, name: str, what: str, data: bytes) -> None:
        self.answer(200, b"{}", headers={"Content-Type": "application/json"})

    def _get_blob(self, name: str, what: str, data: bytes) -> None:
        found = self.registry.blobs.get((name, what))
        if found is None:
            self.answer(404, error="BLOB_UNKNOWN")
            return
        headers = {
            "Docker-Content-Digest": what,
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
        }
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(match[1]), int(match[2] or len(found) - 1)
            if start >= len(found):
                self.answer(416, headers={"Content-Range": f"bytes */{len(found)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{end}/{len(found)}"
            self.answer(206, found[start : end + 1], headers=headers)
            return
        self.answer(200, found, headers=headers)

    _head_blob = _get_blob

    def _post_uploads(self, name: str, what: str, data: bytes) -> None:
        if mount := self.query.get("mount"):
            source = self.registry.blobs.get((self.query.get("from", ""), mount))
            if source is not None:
                self._keep(name, mount, source)
                return
        if digest := self.query.get("digest"):
            self._keep(name, digest, data)
            return
        upload = secrets.token_hex(8)
        self.registry.uploads[upload] = bytearray()
        self._state(202, name, upload)

    def _state(self, status: int, name: str, upload: str) -> None:
        end = max(0, len(self.registry.uploads[upload]) - 1)
        headers = {
            "Location": f"/v2/{name}/blobs/uploads/{upload}",
            "Range": f"0-{end}",
            "Docker-Upload-UUID": upload,
        }
        self.answer(status, headers=headers)

    def _patch_upload(self, name: str, what: str, data: bytes) -> None:
        found = self.registry.uploads.get(what)
        if found is None:
            self.answer(404, error="BLOB_UPLOAD_UNKNOWN")
            return
        said = re.fullmatch(r"(\d+)-(\d+)", self.headers.get("Content-Range", ""))
        if said is not None and (int(said[1]) != len(found) or int(said[2]) - int(said[1]) + 1 != len(data)):
            end = max(0, len(found) - 1)
            self.answer(416, headers={"Location": f"/v2/{name}/blobs/uploads/{what}", "Range": f"0-{end}"})
            return
        found += data
        self._state(202, name, what)

    def _get_upload(self, name: str, what: str, data: bytes) -> None:
        if what not in self.registry.uploads:
            self.answer(404, error="BLOB_UPLOAD_UNKNOWN")
            return
        self._state(204, name, what)

    def _delete_upload(self, name: str, what: str, data: bytes) -> None:
        self.registry.uploads.pop(what, None)
        self.answer(204)

    def _put_upload(self, name: str, what: str, data: bytes) -> None:
        found = self.registry.uploads.get(what)
        if found is None:
            self.answer(404, error="BLOB_UPLOAD_UNKNOWN")
            return
        whole = bytes(found) + data
        if digest_of(whole) != self.query.get("digest"):
            self.answer(400, error="DIGEST_INVALID")
            return
        del self.registry.uploads[what]
        self._keep(name, self.query["digest"], whole)

    def _keep(self, name: str, digest: str, data: bytes) -> None:
        if digest_of(data) != digest:
            self.answer(400, error="DIGEST_INVALID")
            return
        self.registry.blobs[name, digest] = data
        headers = {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest}
        self.answer(201, headers=headers)

    # Manifests

    def _get_manifest(self, name: str, what: str, data: bytes) -> None:
        digest = what if what.startswith("sha256:") else self.registry.tags.get((name, what), "")
        found = self.registry.manifests.get((name, digest))
        if found is None:
            self.answer(404, error="MANIFEST_UNKNOWN")
            return
        media_type, body = found
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest, "ETag": f'"{digest}"'}
        self.answer(200, body, headers=headers)

    _head_manifest = _get_manifest

    def _put_manifest(self, name: str, what: str, data: bytes) -> None:
        digest = digest_of(data)
        value = json.loads(data)
        if what.startswith("sha256:") and what != digest:
            self.answer(400, error="DIGEST_INVALID")
            return
        if self.registry.heeds_if_match:
            now = self.registry.tags.get((name, what), "")
            wanted = self.headers.get("If-Match")
            if (wanted and wanted != f'"{now}"') or (now and self.headers.get("If-None-Match") == "*"):
                self.answer(412, error="DENIED")
                return
        media_type = self.headers.get("Content-Type", "")
        parts = [value["config"], *value["layers"]] if "config" in value else []
        children = value.get("manifests", [])
        if any((name, item["digest"]) not in self.registry.blobs for item in parts) or (
            # An index of referrers may name what is gone; any other may not.
            not what.startswith("sha256-")
            and any((name, item["digest"]) not in self.registry.manifests for item in children)
        ):
            self.answer(404, error="MANIFEST_BLOB_UNKNOWN")
            return
        self.registry.manifests[name, digest] = (media_type, data)
        if not what.startswith("sha256:"):
            self.registry.tags[name, what] = digest
        headers = {"Location": f"/v2/{name}/manifests/{digest}", "Docker-Content-Digest": digest}
        if self.registry.referrers_api and value.get("subject"):
            headers["OCI-Subject"] = value["subject"]["digest"]
        self.answer(201, headers=headers)

    def _delete_manifest(self, name: str, what: str, data: bytes) -> None:
        digest = what if what.startswith("sha256:") else self.registry.tags.pop((name, what), "")
        if what.startswith("sha256:"):
            self.registry.manifests.pop((name, digest), None)
            self.registry.tags = {key: value for key, value in self.registry.tags.items() if value != digest}
        self.answer(202)

    def _get_referrers(self, name: str, what: str, data: bytes) -> None:
        if not self.registry.referrers_api:
            self.answer(404, error="NOT_FOUND")
            return
        found = []
        for (repository, digest), (media_type, body) in sorted(self.registry.manifests.items()):
            value = json.loads(body)
            if repository == name and (value.get("subject") or {}).get("digest") == what:
                kind = value.get("artifactType") or value.get("config", {}).get("mediaType", "")
                item = {"mediaType": media_type, "digest": digest, "size": len(body), "artifactType": kind}
                if value.get("annotations"):
                    item["annotations"] = value["annotations"]
                found.append(item)
        wanted = self.query.get("artifactType")
        headers = {"Content-Type": INDEX}
        if wanted:
            found = [item for item in found if item["artifactType"] == wanted]
            headers["OCI-Filters-Applied"] = "artifactType"
        start = int(self.query.get("at", 0))
        if len(found) > start + self.registry.page:
            headers["Link"] = f'</v2/{name}/referrers/{what}?at={start + self.registry.page}>; rel="next"'
        shown = found[start : start + self.registry.page]
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": shown}).encode()
        self.answer(200, body, headers=headers)

    def _get_tags(self, name: str, what: str, data: bytes) -> None:
        tags = sorted(tag for repository, tag in self.registry.tags if repository == name)
        body = json.dumps({"name": name, "tags": tags}).encode()
        self.answer(200, body, headers={"Content-Type": "application/json"})


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients of these tests go away in the middle


@contextlib.contextmanager
def served(registry: Registry) -> Iterator[Registry]:
    """The registry on a free port of loopback; ``registry.host`` names it."""
    handler = type("Bound", (Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
