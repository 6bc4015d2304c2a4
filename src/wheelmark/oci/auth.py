"""Who we are to a registry: credentials as docker and podman keep them, and the tokens that registries ask for.

Sources: ``docker login``'s ``config.json`` (``auths``, ``credsStore``, ``credHelpers``; helpers as in
docker-credential-helpers), containers-auth.json(5) (``REGISTRY_AUTH_FILE``, keys with a path), RFC 7235 (challenges), RFC
7617 (Basic), and the distribution project's "Token Authentication Specification" and "OAuth2 Token Authentication".

Secrets are held in fields that do not print, stand in no error, and go only over TLS or to this machine itself.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark import strictjson
from wheelmark.errors import ConfigError, InputError, RegistryError
from wheelmark.oci.reference import is_loopback

_DOCKER_HUB = "docker.io"
_DOCKER_HUB_KEY = "index.docker.io"
"""What ``docker login`` without a host writes."""
_TOKEN_USER = "<token>"  # noqa: S105 - docker-credential-helpers' word for "the secret is an identity token"
_HELPER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_FOUND = "credentials not found in native keychain"
_HELPER_SECONDS = 60
_FILE_LIMIT = strictjson.Limits(size=1 << 20, items=10_000)
_TOKEN_SECONDS = 60
"""How long a token counts that does not say it (token specification)."""
_TOKEN_MARGIN = 10
_MAX_TOKEN = 64 << 10
_CHALLENGE = re.compile(r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)')
_SCHEME = re.compile(r"\s*(?:,\s*)*(Bearer|Basic)(?:\s+|$|(?=,))", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """A name and a password, or an identity token in the password's place."""

    user: str
    secret: str = dataclasses.field(repr=False)
    is_token: bool = False
    """The secret is an identity (refresh) token."""

    def basic(self) -> str:
        """The ``Authorization`` header's value."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Challenge:
    """What a registry asks for with its 401."""

    scheme: str
    """``basic`` or ``bearer``."""
    realm: str = ""
    service: str = ""


def find_credentials(
    host: str, repository: str = "", *, environment: Mapping[str, str] | None = None
) -> Credentials | None:
    """What this user's configuration holds for a registry; ``None``: nothing, which is anonymous.

    ``REGISTRY_AUTH_FILE`` alone where it is set; else podman's ``auth.json`` (``XDG_RUNTIME_DIR``, then
    ``XDG_CONFIG_HOME``), then docker's ``config.json`` (``DOCKER_CONFIG``). The first that knows the host counts.

    Args:
        host: With its port.
        repository: Keys may be longer than a host (``registry.example/team``): the longest that fits counts.
        environment: Default: this process's.

    Raises:
        ConfigError: A file is not what it should be, a helper failed (``registry-credentials``).
    """
    environment = os.environ if environment is None else environment
    for path, must in _files(environment):
        value = _load(path, must=must)
        if value is not None:
            with _reading(path):
                found = _in_file(value, host, repository)
            if found is not None:
                return found
    return None


def _files(environment: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named), True
        return
    home = Path(environment.get("HOME") or Path.home())
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json", False
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json", False
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json", False


def _load(path: Path, *, must: bool) -> dict[str, Any] | None:
    try:
        with path.open("rb") as stream:
            data = stream.read(_FILE_LIMIT.size + 1)
    except OSError as error:
        if not must and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return None
        raise _unusable(path, error.strerror or "cannot be read") from error
    try:
        return strictjson.load_object(data or b"{}", what=path.name, limits=_FILE_LIMIT)
    except InputError as error:
        raise _unusable(path, error.what) from None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of a file's contents, without the contents."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError):
        raise _unusable(path, "an entry is malformed") from None


def _in_file(value: Mapping[str, Any], host: str, repository: str) -> Credentials | None:
    hosts = (host, _DOCKER_HUB_KEY) if host == _DOCKER_HUB else (host,)
    helpers = value.get("credHelpers") or {}
    for name in hosts:
        if helper := helpers.get(name):
            return _ask_helper(helper, name)
    auths = {_key(key): entry for key, entry in (value.get("auths") or {}).items()}
    wanted = [f"{host}/{repository}"[: len(host) + 1 + end] for end in _path_ends(repository)]
    for key in (*wanted, *hosts):
        if (entry := auths.get(key)) and (found := _entry(entry)):
            return found
    if store := value.get("credsStore"):
        key = f"https://{_DOCKER_HUB_KEY}/v1/" if host == _DOCKER_HUB else host
        return _ask_helper(store, key)
    return None


def _path_ends(repository: str) -> list[int]:
    """Where each prefix of whole parts of a path ends, the longest first."""
    ends = [match.start() for match in re.finditer("/", repository)]
    return sorted({*ends, len(repository)} - {0}, reverse=True)


def _key(key: str) -> str:
    """A key of ``auths``: docker writes addresses (``https://index.docker.io/v1/``), podman names."""
    scheme, separator, rest = key.partition("://")
    if not separator:
        return scheme
    return rest.partition("/")[0]


def _entry(entry: Mapping[str, Any]) -> Credentials | None:
    if token := entry.get("identitytoken"):
        return Credentials(user=_TOKEN_USER, secret=_text(token), is_token=True)
    if packed := entry.get("auth"):
        user, colon, secret = base64.b64decode(packed, validate=True).decode().partition(":")
        if not colon:
            raise ValueError
        return Credentials(user=user, secret=secret.rstrip("\0"))
    if "username" in entry and "password" in entry:
        return Credentials(user=_text(entry["username"]), secret=_text(entry["password"]))
    return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _ask_helper(helper: str, key: str) -> Credentials | None:
    if not _HELPER_NAME.fullmatch(helper):
        raise ValueError
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=key.encode(), capture_output=True, check=False, timeout=_HELPER_SECONDS
        )
    except FileNotFoundError as error:
        raise ConfigError(
            f"credentials for {key} are kept by {program}, which is not there",
            fix=f"install {program}, or log in again with another store",
            reason="registry-credentials",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} did not answer", reason="registry-credentials") from error
    if done.returncode:
        if _NOT_FOUND in done.stdout.decode(errors="replace"):
            return None
        # Nothing of what it said: it may hold the secret.
        raise ConfigError(
            f"{program} get failed for {key} (exit {done.returncode})", reason="registry-credentials"
        )
    answer = json.loads(done.stdout)
    user, secret = _text(answer["Username"]), _text(answer["Secret"])
    return Credentials(user=user, secret=secret, is_token=user == _TOKEN_USER)


def _unusable(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path}, which holds credentials, cannot be used: {why}",
        fix="log in again, or name another file with REGISTRY_AUTH_FILE",
        reason="registry-credentials",
    )


def read_challenge(header: str) -> Challenge | None:
    """The challenge of a ``WWW-Authenticate`` header that can be answered here: Bearer before Basic.

    Args:
        header: The header's value; several challenges stand one behind the other.
    """
    found: dict[str, Challenge] = {}
    at = 0
    while match := _SCHEME.match(header, at):
        at = match.end()
        parameters: dict[str, str] = {}
        while not _SCHEME.match(header, at) and (item := _CHALLENGE.match(header, at)):
            parameters[item[1].lower()] = re.sub(r"\\(.)", r"\1", item[2]) if item[2] is not None else item[3]
            at = item.end()
        scheme = match[1].lower()
        found[scheme] = Challenge(
            scheme=scheme, realm=parameters.get("realm", ""), service=parameters.get("service", "")
        )
    return found.get("bearer") or found.get("basic")


TokenRequest = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Any]
"""Method, address, headers, form -> the JSON of the answer."""


class Authorizer:
    """Answers one registry's challenges.

    Args:
        host: The registry.
        find: Credentials for a repository of it.
        request: How a token service is asked.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        host: str,
        *,
        find: Callable[[str], Credentials | None],
        request: TokenRequest,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._find = find
        self._request = request
        self._clock = clock
        self._lock = threading.Lock()
        self._challenge: Challenge | None = None
        self._tokens: dict[tuple[str, ...], tuple[str, float]] = {}

    def header(self, scopes: tuple[str, ...], *, safe: bool) -> str:
        """The ``Authorization`` of a request, once the registry has said what it asks for; empty before.

        Args:
            scopes: What the request needs: ``repository:NAME:pull,push``.
            safe: Whether the connection may carry a secret.
        """
        with self._lock:
            challenge = self._challenge
            if challenge is None or not safe:
                return ""
            if challenge.scheme == "basic":
                found = self._credentials(scopes)
                return "" if found is None or found.is_token else found.basic()
            token, until = self._tokens.get(scopes, ("", 0.0))
            if self._clock() >= until:
                token, until = self._fetch(challenge, scopes)
                self._tokens[scopes] = (token, until)
            return f"Bearer {token}"

    def learn(self, header: str, scopes: tuple[str, ...], *, used: str, safe: bool) -> bool:
        """Take note of a challenge; whether asking again with what is known now may help.

        Args:
            header: ``WWW-Authenticate`` of the refusal.
            scopes: What the request needed.
            used: The ``Authorization`` that was refused; empty where none was sent.
            safe: Whether the connection may carry a secret.
        """
        challenge = read_challenge(header)
        if challenge is None or not safe:
            return False
        with self._lock:
            self._challenge = challenge
            if challenge.scheme == "basic":
                found = self._credentials(scopes)
                return found is not None and not found.is_token and used != found.basic()
            if used == f"Bearer {self._tokens.get(scopes, ('', 0.0))[0]}":
                del self._tokens[scopes]
            return True

    def _credentials(self, scopes: tuple[str, ...]) -> Credentials | None:
        return self._find(scopes[0].split(":")[1] if scopes else "")

    def _fetch(self, challenge: Challenge, scopes: tuple[str, ...]) -> tuple[str, float]:
        realm = challenge.realm
        where = urllib.parse.urlsplit(realm)
        if where.scheme != "https" and not (where.scheme == "http" and is_loopback(where.netloc)):
            raise RegistryError(
                f"{self._host} wants a token from {realm[:200]!r}, where a secret would travel in the clear",
                reason="registry-auth",
            )
        began = self._clock()
        found = self._credentials(scopes)
        query = [("service", challenge.service)] if challenge.service else []
        if found is not None and found.is_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": found.secret,
                "client_id": "wheelmark",
                "scope": " ".join(scopes),
                **dict(query),
            }
            answer = self._request("POST", realm, {}, form)
        else:
            query += [("scope", scope) for scope in scopes]
            joined = realm + ("&" if where.query else "?") + urllib.parse.urlencode(query)
            headers = {} if found is None else {"Authorization": found.basic()}
            answer = self._request("GET", joined, headers, {})
        token = (answer.get("token") or answer.get("access_token")) if isinstance(answer, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token) or len(token) > _MAX_TOKEN:
            raise RegistryError(
                f"the token service of {self._host} answers without a token", reason="registry-auth"
            )
        seconds = answer.get("expires_in")
        lasts = seconds if type(seconds) is int and seconds > _TOKEN_SECONDS else _TOKEN_SECONDS
        return token, began + lasts - _TOKEN_MARGIN
