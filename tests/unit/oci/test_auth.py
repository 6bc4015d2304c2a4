"""Credentials as docker and podman keep them, and challenges as registries write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wheelmark.errors import ConfigError, RegistryError
from wheelmark.oci.auth import Authorizer, Challenge, Credentials, find_credentials, read_challenge

HOST = "registry.example:5000"


def packed(user: str, secret: str) -> str:
    return base64.b64encode(f"{user}:{secret}".encode()).decode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def found(home: Path, host: str = HOST, repository: str = "", **more: str) -> str:
    made = find_credentials(host, repository, environment={"HOME": str(home), **more})
    return "" if made is None else f"{made.user}:{made.secret}"


def test_nothing_configured_is_nobody(home: Path) -> None:
    assert found(home) == ""


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/", f"http://{HOST}/v2/"])
def test_docker_s_file_with_its_ways_to_write_a_host(home: Path, key: str) -> None:
    write(home / ".docker" / "config.json", {"auths": {key: {"auth": packed("u", "p:q")}, "x": {}}})
    assert found(home) == "u:p:q"
    assert found(home, "other.example") == ""
    assert found(home, f"{HOST}1") == ""


def test_the_order_of_files(home: Path) -> None:
    def entry(name: str) -> dict[str, Any]:
        return {"auths": {HOST: {"auth": packed(name, "p")}}}

    write(home / ".docker" / "config.json", entry("docker"))
    assert found(home) == "docker:p"
    write(home / "d" / "config.json", entry("named"))
    assert found(home, DOCKER_CONFIG=str(home / "d")) == "named:p"
    write(home / ".config" / "containers" / "auth.json", entry("podman"))
    assert found(home) == "podman:p"
    write(home / "run" / "containers" / "auth.json", entry("runtime"))
    assert found(home, XDG_RUNTIME_DIR=str(home / "run")) == "runtime:p"
    write(home / "one.json", {"auths": {}})
    assert found(home, REGISTRY_AUTH_FILE=str(home / "one.json")) == ""


def test_the_longest_path_that_fits_counts(home: Path) -> None:
    auths = {
        HOST: {"auth": packed("host", "p")},
        f"{HOST}/team": {"auth": packed("team", "p")},
        f"{HOST}/team/app": {"auth": packed("app", "p")},
    }
    write(home / ".config" / "containers" / "auth.json", {"auths": auths})
    assert found(home, repository="team/app") == "app:p"
    assert found(home, repository="team/other/x") == "team:p"
    assert found(home, repository="teams/app") == "host:p"
    assert found(home) == "host:p"


def test_docker_hub_is_kept_under_another_name(home: Path) -> None:
    key = "https://index.docker.io/v1/"
    write(home / ".docker" / "config.json", {"auths": {key: {"auth": packed("u", "p")}}})
    assert found(home, "docker.io", "library/x") == "u:p"


def test_identity_tokens(home: Path) -> None:
    write(home / ".docker" / "config.json", {"auths": {HOST: {"identitytoken": "t0k"}}})
    made = find_credentials(HOST, environment={"HOME": str(home)})
    assert made == Credentials(user="<token>", secret="t0k", is_token=True)  # noqa: S106


def test_names_and_passwords_apart(home: Path) -> None:
    write(home / ".docker" / "config.json", {"auths": {HOST: {"username": "u", "password": "p"}}})
    assert found(home) == "u:p"


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"auths": {"a": 1, "a": 2}}',
        f'{{"auths": {{"{HOST}": {{"auth": "%%"}}}}}}',
        f'{{"auths": {{"{HOST}": {{"auth": "YQ=="}}}}}}',
        f'{{"auths": {{"{HOST}": 7}}}}',
        '{"auths": []}',
        f'{{"credHelpers": {{"{HOST}": "../x"}}}}',
        f'{{"credHelpers": {{"{HOST}": 7}}}}',
        f'{{"auths": {{"{HOST}": {{"identitytoken": 7}}}}}}',
    ],
)
def test_a_file_that_is_none_is_an_error_without_its_contents(home: Path, text: str) -> None:
    path = write(home / ".docker" / "config.json", text)
    if text == '{"auths": []}':
        assert found(home) == ""
        return
    with pytest.raises(ConfigError) as caught:
        found(home)
    assert caught.value.reason == "registry-credentials"
    assert str(path) in caught.value.what
    assert "YQ==" not in str(caught.value)


def test_a_file_that_is_named_has_to_be_there(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        found(home, REGISTRY_AUTH_FILE=str(home / "absent"))
    assert caught.value.reason == "registry-credentials"


def helper(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A credential helper ``test`` on the path: a real program."""
    path = write(home / "bin" / "docker-credential-test", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")


ANSWER = """read host; test "$1" = get && echo "{\\"ServerURL\\": \\"$host\\", \\"Username\\": \\"at-$host\\", \\"Secret\\": \\"p\\"}" """


@pytest.mark.parametrize("config", [{"credHelpers": {HOST: "test"}}, {"credsStore": "test"}])
def test_helpers_are_asked(home: Path, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, Any]) -> None:
    helper(home, monkeypatch, ANSWER)
    write(home / ".docker" / "config.json", config)
    assert found(home) == f"at-{HOST}:p"
    assert bool(found(home, "other.example")) == ("credsStore" in config)


def test_a_helper_may_give_an_identity_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(home, monkeypatch, """echo '{"Username": "<token>", "Secret": "t"}'""")
    write(home / ".docker" / "config.json", {"credsStore": "test"})
    made = find_credentials(HOST, environment={"HOME": str(home)})
    assert made is not None
    assert made.is_token


def test_a_helper_that_knows_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(home, monkeypatch, "echo 'credentials not found in native keychain'; exit 1")
    write(home / ".docker" / "config.json", {"credsStore": "test"})
    assert found(home) == ""


@pytest.mark.parametrize("script", ["echo s3cret; exit 1", "echo s3cret", 'echo \'{"Secret": "s3cret"}\''])
def test_a_helper_that_fails_does_not_tell_what_it_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    helper(home, monkeypatch, script)
    write(home / ".docker" / "config.json", {"credsStore": "test"})
    with pytest.raises(ConfigError) as caught:
        found(home)
    assert caught.value.reason == "registry-credentials"
    assert "s3cret" not in str(caught.value)


def test_a_helper_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    write(home / ".docker" / "config.json", {"credsStore": "test"})
    with pytest.raises(ConfigError, match="docker-credential-test") as caught:
        found(home)
    assert caught.value.reason == "registry-credentials"


def test_secrets_do_not_print() -> None:
    made = Credentials(user="u", secret="s3cret")  # noqa: S106
    assert "s3cret" not in repr(made)
    assert made.basic() == f"Basic {packed('u', 's3cret')}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("Negotiate", None),
        ("Digest realm=x", None),
        ("Basic", Challenge(scheme="basic")),
        ('basic realm="a b"', Challenge(scheme="basic", realm="a b")),
        (
            'Bearer realm="https://t.example/token",service="s, x",scope="repository:a:pull,push"',
            Challenge(scheme="bearer", realm="https://t.example/token", service="s, x"),
        ),
        ('Bearer service=s, realm="r"', Challenge(scheme="bearer", realm="r", service="s")),
        ('Basic realm="b", Bearer realm="r",service="s"', Challenge(scheme="bearer", realm="r", service="s")),
        ('Bearer realm="r", Basic realm="b"', Challenge(scheme="bearer", realm="r")),
        ('Bearer realm="a\\"b"', Challenge(scheme="bearer", realm='a"b')),
    ],
)
def test_challenges(header: str, expected: Challenge | None) -> None:
    assert read_challenge(header) == expected


class TokenService:
    """Answers with a token that names what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, str], Mapping[str, str]]] = []

    def __call__(self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> Any:
        self.asked.append((method, url, headers, form))
        return {"access_token": f"t{len(self.asked)}", "expires_in": 100}


PULL, PUSH = ("repository:a:pull",), ("repository:a:pull,push", "repository:b:pull")
CHALLENGE = 'Bearer realm="https://t.example/token?x=1",service="s"'


def authorizer(service: TokenService, credentials: Credentials | None, now: list[float]) -> Authorizer:
    return Authorizer(HOST, find=lambda _name: credentials, request=service, clock=lambda: now[0])


def test_a_token_is_fetched_for_a_scope_and_kept_for_its_time() -> None:
    service, now = TokenService(), [0.0]
    made = authorizer(service, Credentials(user="u", secret="p"), now)  # noqa: S106
    assert made.header(PULL, safe=True) == ""
    assert made.learn(CHALLENGE, PULL, used="", safe=True)
    assert made.header(PULL, safe=True) == made.header(PULL, safe=True) == "Bearer t1"
    assert made.header(PUSH, safe=True) == "Bearer t2"
    now[0] = 91
    assert made.header(PULL, safe=True) == "Bearer t3"
    urls = [url for _, url, _, _ in service.asked]
    assert urls[0] == "https://t.example/token?x=1&service=s&scope=repository%3Aa%3Apull"
    assert urls[1].endswith("&scope=repository%3Aa%3Apull%2Cpush&scope=repository%3Ab%3Apull")
    assert service.asked[0][2] == {"Authorization": f"Basic {packed('u', 'p')}"}


def test_a_token_that_was_refused_is_not_used_again() -> None:
    service = TokenService()
    made = authorizer(service, None, [0.0])
    assert made.learn(CHALLENGE, PULL, used="", safe=True)
    first = made.header(PULL, safe=True)
    assert made.learn(CHALLENGE, PULL, used=first, safe=True)
    assert made.header(PULL, safe=True) != first
    assert service.asked[0][2] == {}  # nobody is anonymous without a header


def test_an_identity_token_goes_in_a_form() -> None:
    service = TokenService()
    made = authorizer(service, Credentials(user="<token>", secret="i", is_token=True), [0.0])  # noqa: S106
    assert made.learn(CHALLENGE, PULL, used="", safe=True)
    assert made.header(PULL, safe=True) == "Bearer t1"
    method, url, headers, form = service.asked[0]
    assert (method, url, headers) == ("POST", "https://t.example/token?x=1", {})
    assert (form["refresh_token"], form["grant_type"], form["scope"]) == ("i", "refresh_token", PULL[0])


@pytest.mark.parametrize(
    "realm", ["http://t.example/", "ftp://t.example/", "", "t.example", "http://localhost@t.example/"]
)
def test_a_realm_in_the_clear_gets_nothing(realm: str) -> None:
    service = TokenService()
    made = authorizer(service, Credentials(user="u", secret="p"), [0.0])  # noqa: S106
    assert made.learn(f'Bearer realm="{realm}"', PULL, used="", safe=True)
    with pytest.raises(RegistryError) as caught:
        made.header(PULL, safe=True)
    assert caught.value.reason == "registry-auth"
    assert not service.asked


def test_a_connection_in_the_clear_carries_nothing() -> None:
    service = TokenService()
    made = authorizer(service, Credentials(user="u", secret="p"), [0.0])  # noqa: S106
    assert not made.learn("Basic", PULL, used="", safe=False)
    assert made.learn("Basic", PULL, used="", safe=True)
    assert made.header(PULL, safe=False) == ""
    assert made.header(PULL, safe=True) == f"Basic {packed('u', 'p')}"
    assert not made.learn("Basic", PULL, used=f"Basic {packed('u', 'p')}", safe=True)


def test_nobody_has_no_answer_to_basic() -> None:
    made = authorizer(TokenService(), None, [0.0])
    assert not made.learn("Basic", PULL, used="", safe=True)
    assert made.header(PULL, safe=True) == ""
