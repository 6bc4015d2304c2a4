from wheelmark.packages.index import sources_from

LISTED = """\
:env:.find-links='/wheels'
global.cert='/certs.pem'
global.extra-index-url='file:///mirror/simple https://user:word@packages.example.invalid/simple'
global.find-links='/elsewhere'
global.index-url='https://first.example.invalid/simple'
install.index-url='https://second.example.invalid/simple'
install.trusted-host='a.invalid\\nb.invalid'
freeze.timeout='3'
"""


def test_pips_settings_become_uvs() -> None:
    sources = sources_from(LISTED, {"PIP_FIND_LINKS": "/wheels", "HOME": "/nowhere"})
    assert sources.as_uv_environment() == {
        "UV_DEFAULT_INDEX": "https://second.example.invalid/simple",
        "UV_INDEX": "file:///mirror/simple https://user:word@packages.example.invalid/simple",
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/certs.pem",
        "UV_INSECURE_HOST": "a.invalid b.invalid",
    }


def test_the_environment_wins_and_is_enough_without_pip() -> None:
    variables = {
        "PIP_INDEX_URL": "https://third.example.invalid/simple",
        "PIP_NO_INDEX": "1",
        "PIP_PROXY": "http://p.invalid",
    }
    assert sources_from(LISTED, variables).index == "https://third.example.invalid/simple"
    alone = sources_from("", variables)
    assert alone.no_index
    assert alone.as_uv_environment()["ALL_PROXY"] == "http://p.invalid"


def test_locks_are_resolved_without_what_lies_on_this_disk() -> None:
    shared = sources_from(LISTED.replace("https://second", "file:///second"), {"PIP_NO_INDEX": "1"}).shared()
    assert shared.index == ""
    assert shared.extra == ("https://user:word@packages.example.invalid/simple",)
    assert shared.find_links == ()
    assert not shared.no_index
    assert shared.certificate == "/certs.pem"


def test_nothing_set_is_nothing_passed() -> None:
    assert sources_from("", {}).as_uv_environment() == {}
