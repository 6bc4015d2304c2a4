"""HTTP to one registry: tried again where that may help, bounded in time and bytes, secrets only where they belong.

Sources: RFC 9110 (redirects, ``Retry-After``), the distribution specification 1.1 ("Error codes"). The library is
``requests``; what it does by itself is switched off (``.netrc``, redirects, retries, decoding of contents), and the
time that an answer's head may take is bounded as a whole, which sockets' timeouts do not.

Reasons: ``registry-unreachable`` (no connection, or it broke each time), ``registry-auth`` (nobody we are may do it),
``registry-answer`` (a status or a document that does not belong there), ``registry-limit`` (more bytes, more time
or more redirects than anything honest needs; an ``InputError``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import email.utils
import io
import os
import random
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import requests
import urllib3

import wheelmark
from wheelmark import strictjson
from wheelmark.errors import InputError, RegistryError
from wheelmark.oci.auth import Authorizer, Credentials, find_credentials
from wheelmark.oci.connections import WANTS_TLS, TimedAdapter, tls_problem, why
from wheelmark.oci.reference import is_host, is_loopback

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that another try may change."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_MAX_ERROR_BYTES = 64 << 10
_JSON_LIMIT = strictjson.Limits(size=1 << 20, items=10_000)
_BLOCK = 1 << 18
_API_HOSTS: Mapping[str, str] = {"docker.io": "registry-1.docker.io"}
"""Names of images -> the host that serves them."""
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
"""Errors of a connection that was not had, or broke."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long is waited, and for what. Times in seconds."""

    attempts: int = 6
    """Of one request, the first included."""
    first: float = 0.5
    """Wait before the second attempt; it doubles, up to ``longest``, less a random part."""
    longest: float = 30.0
    asked: float = 120.0
    """The longest ``Retry-After`` that is waited for."""
    connect: float = 15.0
    silence: float = 30.0
    """Without a byte, while something is awaited."""
    head: float = 120.0
    """Until the head of an answer is complete: a registry may hash a layer before it answers."""
    rate: int = 1024
    """Bytes a second, on average after the first ``silence``: less is an answer that never ends."""


class Answer:
    """A response: its status and headers, and a body that is read within bounds."""

    def __init__(
        self, response: requests.Response, url: str, patience: Patience, check: Callable[[], None]
    ) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.url = url
        self._raw = response.raw
        self._response = response
        self._patience = patience
        self._check = check
        self._began = time.monotonic()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()

    @property
    def media_type(self) -> str:
        """``Content-Type`` without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip()

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end.

        Raises:
            InputError: It comes too slowly (``registry-limit``).
            OSError: The connection broke (also errors of ``requests`` and ``urllib3``).
        """
        self._check()
        # ``read1`` gives what is there: a body that trickles must not be waited for block by block.
        data: bytes = self._raw.read1(min(size, _BLOCK), decode_content=False)
        self._count += len(data)
        took = time.monotonic() - self._began - self._patience.silence
        if data and took > 0 and self._count < took * self._patience.rate:
            raise InputError(
                f"{_place(self.url)} sends its answer too slowly to wait for its end", reason="registry-limit"
            )
        return data

    def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            InputError: It is longer than ``limit`` bytes, or comes too slowly (``registry-limit``).
        """
        found = io.BytesIO()
        said = self.headers.get("Content-Length", "")
        if said.isdecimal() and int(said) > limit:
            raise _too_long(self.url, limit)
        while data := self.read(limit + 1 - found.tell()):
            found.write(data)
            if found.tell() > limit:
                raise _too_long(self.url, limit)
        return found.getvalue()


class Transport:
    """Requests to one registry; safe to use from several threads.

    Args:
        host: The registry, with its port.
        plain_http: Speak HTTP without TLS. Always so with this machine itself, unless there is TLS; with others
            only where somebody said so, and then no credentials are sent.
        find: Credentials for a repository; default: this user's configuration.
        patience: How long is waited.
        cancel: Set from elsewhere, it ends what is under way.
        sleep: Waits; default: until the time is over or ``cancel`` is set.
    """

    def __init__(
        self,
        host: str,
        *,
        plain_http: bool = False,
        find: Callable[[str], Credentials | None] | None = None,
        patience: Patience | None = None,
        cancel: threading.Event | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        if not is_host(host):
            raise InputError(f"{host[:200]!r} is no registry host", reason="registry-reference")
        self.host = host
        self.patience = patience or Patience()
        self.cancel = cancel or threading.Event()
        self._sleep = self.cancel.wait if sleep is None else sleep
        plain = plain_http or is_loopback(host)
        self._asked_plain = plain_http
        self.base = f"{'http' if plain else 'https'}://{_API_HOSTS.get(host, host)}"
        self._authorizer = Authorizer(
            host,
            find=find or (lambda repository: find_credentials(host, repository)),
            request=self._token,
        )
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        weakref.finalize(self, _close, self._sessions)

    @contextlib.contextmanager
    def request(
        self,
        method: str,
        address: str,
        *,
        scopes: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        expected: frozenset[int] = frozenset({200}),
        again: bool = True,
    ) -> Iterator[Answer]:
        """One exchange; what is passing (429, 5xx, a broken connection) is tried again.

        Args:
            method: Of HTTP.
            address: A path of this registry, or an address that it gave.
            scopes: What a token has to allow.
            headers: More of them.
            body: Bytes to send.
            expected: Statuses that are an answer.
            again: ``False``: the first passing failure is raised, for the caller to find out what was done.

        Raises:
            RegistryError, InputError: See the module.
        """
        url = urllib.parse.urljoin(self.base, address)
        for attempt in range(1, self.patience.attempts + 1):
            last = attempt == self.patience.attempts or not again
            try:
                answer = self._authorized(method, url, scopes, headers or {}, body)
                if answer.status == requests.codes.bad_request and self._wants_tls(url):
                    with answer:
                        url = "https" + url.removeprefix("http")
                    self.base = "https" + self.base.removeprefix("http").removeprefix("s")
                    answer = self._authorized(method, url, scopes, headers or {}, body)
            except BROKEN as error:
                if (problem := tls_problem(self.host, error)) is not None:
                    raise problem from None
                if last:
                    raise self.unreachable(error) from None
                self.wait(attempt)
                continue
            with answer:
                if answer.status in expected:
                    yield answer
                    return
                if answer.status not in _PASSING or last:
                    raise self.refused(answer, method)
                self.wait(attempt, answer.headers.get("Retry-After", ""))

    def _wants_tls(self, url: str) -> bool:
        """Whether a registry that answered 400 speaks TLS, and was spoken to without.

        Raises:
            RegistryError: It does, and somebody said that it does not (``registry-tls``).
        """
        where = urllib.parse.urlsplit(url)
        if where.scheme != "http" or where.netloc.lower() != urllib.parse.urlsplit(self.base).netloc.lower():
            return False
        # Asked anew: an answer to HEAD has no body that says it.
        with self._send("GET", f"http://{where.netloc}/v2/", {}, None) as answer:
            if answer.status != requests.codes.bad_request or WANTS_TLS not in answer.body(_MAX_ERROR_BYTES):
                return False
        if self._asked_plain:
            raise RegistryError(
                f"{self.host} speaks TLS", fix="leave --plain-http out", reason="registry-tls"
            )
        return True

    def whole(
        self,
        address: str,
        *,
        limit: int,
        scopes: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        expected: frozenset[int] = frozenset({200}),
    ) -> tuple[Answer, bytes]:
        """GET a document of at most ``limit`` bytes; one that broke off is fetched again.

        Raises:
            RegistryError, InputError: See the module.
        """
        for attempt in range(1, self.patience.attempts + 1):
            with self.request("GET", address, scopes=scopes, headers=headers, expected=expected) as answer:
                try:
                    return answer, answer.body(limit)
                except BROKEN as error:
                    problem = self.unreachable(error)
            if attempt < self.patience.attempts:
                self.wait(attempt)
        raise problem

    def wait(self, attempt: int, asked: str = "") -> None:
        """Wait before another attempt.

        Args:
            attempt: How many there have been.
            asked: ``Retry-After``: seconds or a date.

        Raises:
            RegistryError: The registry wants to be left alone for longer than is waited.
        """
        patience = self.patience
        seconds = min(patience.longest, patience.first * 2.0 ** (attempt - 1))
        seconds *= 0.5 + chance() / 2
        if asked:
            wanted = _seconds(asked)
            if wanted > patience.asked:
                raise RegistryError(
                    f"{self.host} asks to be left alone for {wanted:,.0f} seconds",
                    cause="its rate limit is used up",
                    fix="log in, or run again later: what is there already is not sent again",
                    reason="registry-unreachable",
                )
            seconds = max(seconds, wanted)
        self.pause(seconds)

    def pause(self, seconds: float) -> None:
        """Wait; ended by a cancellation."""
        self.check()
        self._sleep(seconds)
        self.check()

    def check(self) -> None:
        """End here where somebody cancelled.

        Raises:
            RegistryError: ``registry-cancelled``.
        """
        if self.cancel.is_set():
            raise RegistryError(f"the exchange with {self.host} was ended", reason="registry-cancelled")

    def unreachable(self, error: BaseException) -> RegistryError:
        """The error of a connection that was not had, or broke."""
        return RegistryError(
            f"{self.host} cannot be reached: {why(error)}",
            cause="the registry or the network is down, or something between closes connections",
            fix="run again: what is there already is not sent again",
            reason="registry-unreachable",
        )

    def refused(self, answer: Answer, method: str) -> RegistryError:
        """The error of a status that was not expected, with what the registry says of it."""
        said = _said(answer)
        what = f"{self.host} answers {answer.status} to {method} {_place(answer.url)}{said and f': {said}'}"
        if answer.status in {401, 403}:
            return RegistryError(
                what,
                cause="nobody is logged in there, or who is may not do this"
                if self._is_safe(answer.url)
                else "credentials are not sent without TLS",
                fix=f"docker login {self.host} (or podman, skopeo, oras: their files are read)",
                reason="registry-auth",
            )
        reason = "registry-unreachable" if answer.status in _PASSING else "registry-answer"
        return RegistryError(what, reason=reason)

    def _authorized(
        self, method: str, url: str, scopes: tuple[str, ...], headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """Send, and once more with what a 401 asks for; a token that ran out is fetched anew."""
        answer, tries = None, 0
        while answer is None:
            safe = self._is_own(url) and self._is_safe(url)
            used = self._authorizer.header(scopes, safe=safe)
            answer = self._followed(
                method, url, {**headers, **({"Authorization": used} if used else {})}, body
            )
            if answer.status == requests.codes.unauthorized and tries < 2 and self._is_own(answer.url):  # noqa: PLR2004 - a challenge, a token that ran out
                tries += 1
                asked = answer.headers.get("WWW-Authenticate", "")
                if self._authorizer.learn(asked, scopes, used=used, safe=safe):
                    with answer:
                        pass
                    answer = None
        return answer

    def _followed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._send(method, url, headers, body)
            if answer.status not in _REDIRECTS or "Location" not in answer.headers:
                return answer
            with answer:
                target = urllib.parse.urljoin(url, answer.headers["Location"])
            to, here = urllib.parse.urlsplit(target), urllib.parse.urlsplit(url)
            if to.scheme not in {"http", "https"} or (here.scheme, to.scheme) == ("https", "http"):
                raise RegistryError(
                    f"{_place(url)} leads away from TLS, to {_place(target)}", reason="registry-answer"
                )
            if method not in {"GET", "HEAD"} and answer.status not in {307, 308}:
                raise RegistryError(
                    f"{self.host} answers {method} {_place(url)} with a redirect", reason="registry-answer"
                )
            if (to.scheme, to.netloc) != (here.scheme, here.netloc):
                headers = {key: value for key, value in headers.items() if key != "Authorization"}
            url = target
        raise InputError(f"{self.host} redirects without end", reason="registry-limit")

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        self.check()
        session = self._session()
        where = urllib.parse.urlsplit(url)
        fixed = {
            "Accept-Encoding": "identity",
            "User-Agent": f"wheelmark/{wheelmark.__version__}",
            **headers,
        }
        request = requests.Request(method, url, headers=fixed, data=body, auth=_unchanged)
        prepared = session.prepare_request(request)
        response = session.send(
            prepared,
            stream=True,
            allow_redirects=False,
            timeout=(self.patience.connect, self.patience.silence),
            verify=os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or True,
            proxies={} if is_loopback(where.netloc) else requests.utils.get_environ_proxies(url),
        )
        return Answer(response, url, self.patience, self.check)

    def _session(self) -> requests.Session:
        found: requests.Session | None = getattr(self._local, "session", None)
        if found is None:
            found = requests.Session()
            found.trust_env = (
                False  # ``.netrc`` is not asked; proxies and certificates are given to each request
            )
            found.mount("https://", TimedAdapter(self.patience.head))
            found.mount("http://", TimedAdapter(self.patience.head))
            self._local.session = found
            self._sessions.append(found)
        return found

    def _token(self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> Any:
        body = urllib.parse.urlencode(form).encode() if form else None
        more = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        for attempt in range(1, self.patience.attempts + 1):
            try:
                with self._send(method, url, {**headers, **more}, body) as answer:
                    if answer.status == requests.codes.ok:
                        return strictjson.loads(
                            answer.body(_JSON_LIMIT.size), what="token", limits=_JSON_LIMIT
                        )
                    if answer.status not in _PASSING:
                        break
                    asked = answer.headers.get("Retry-After", "")
            except BROKEN as error:
                if attempt == self.patience.attempts:
                    raise self.unreachable(error) from None
                asked = ""
            if attempt < self.patience.attempts:
                self.wait(attempt, asked)
        raise RegistryError(
            f"the token service of {self.host} gives no token (status {answer.status})",
            cause="the name or the password is not right, or may not do this",
            fix=f"docker login {self.host} (or podman, skopeo, oras: their files are read)",
            reason="registry-auth",
        )

    def _is_own(self, url: str) -> bool:
        return _origin(url) == _origin(self.base)

    @staticmethod
    def _is_safe(url: str) -> bool:
        where = urllib.parse.urlsplit(url)
        return where.scheme == "https" or is_loopback(where.netloc)


def _close(sessions: list[requests.Session]) -> None:
    for session in sessions:
        session.close()


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def chance() -> float:
    """From 0 to 1, so that many clients do not come back at once."""
    return random.random()  # noqa: S311 - no secret


def _origin(url: str) -> tuple[str, str]:
    where = urllib.parse.urlsplit(url)
    return where.scheme, where.netloc.lower()


def _place(url: str) -> str:
    """An address as errors show it: without its query, in which there may be tokens."""
    where = urllib.parse.urlsplit(url)
    return f"{where.hostname or ''}{f':{where.port}' if where.port else ''}{where.path}"[:300]


def _said(answer: Answer) -> str:
    """What the registry's error document says."""
    try:
        value = strictjson.loads(answer.body(_MAX_ERROR_BYTES), what="error")
        texts = [f"{item.get('code', '')} {item.get('message', '')}".strip() for item in value["errors"][:3]]
    except (*BROKEN, InputError, KeyError, TypeError, AttributeError):
        return ""
    return "; ".join(texts)[:400]


def _seconds(text: str) -> float:
    if text.strip().isdecimal():
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())


def _too_long(url: str, limit: int) -> InputError:
    return InputError(f"the answer of {_place(url)} is longer than {limit:,} bytes", reason="registry-limit")
