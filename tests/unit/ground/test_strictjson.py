from __future__ import annotations

import resource

import pytest

from wheelmark import strictjson
from wheelmark.errors import InputError

REFUSED = [
    (b"[" * 10_000 + b"]" * 10_000, "json-too-deep"),
    (b'{"a":' * 10_000, "json-too-deep"),
    (b"[" * 33 + b"]" * 33, "json-too-deep"),
    (b'{"a":1,"a":2}', "json-duplicate-key"),
    (b'{"x":{"a":1,"\\u0061":2}}', "json-duplicate-key"),
    (b"[NaN]", "json-number"),
    (b"[Infinity]", "json-number"),
    (b"[-Infinity]", "json-number"),
    (b"1" * 5000, "json-number"),
    (b"", "json-syntax"),
    (b"{", "json-syntax"),
    (b"{}x", "json-syntax"),
    (b"\xff\xfe", "json-syntax"),
    (b'\xef\xbb\xbf{"a":1}', "json-syntax"),
    (b'["\\ud800"]', "json-syntax"),
    (b'{"a\\udc00": 1}', "json-syntax"),
    (b'"' + b'\\"' * 1_000_000, "json-syntax"),
    (b"[" + b"1," * 100_000 + b"1]", "json-too-long"),
    (b'"' + b"a" * ((8 << 20) + 1) + b'"', "json-too-long"),
    (b'{"' + b"k" * ((8 << 20) + 1) + b'":1}', "json-too-long"),
    (b"{" + b",".join(b'"%d":1' % i for i in range(100_001)) + b"}", "json-too-long"),
]


@pytest.mark.parametrize(("data", "reason"), REFUSED, ids=[f"{i}-{r}" for i, (_, r) in enumerate(REFUSED)])
def test_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        strictjson.loads(data)
    assert caught.value.reason == reason


def test_200_megabytes_are_refused_without_being_looked_at() -> None:
    data = bytes(200 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        strictjson.loads(data)
    assert caught.value.reason == "json-too-large"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,2.5,"[{",true,null]}', {"a": [1, 2.5, "[{", True, None]}),
        (b'"]}]}"', "]}]}"),
        (b'["\\\\","\\"["]', ["\\", '"[']),
        (b"[" * 32 + b"]" * 32, None),
    ],
)
def test_read(data: bytes, value: object) -> None:
    read = strictjson.loads(data)
    assert value is None or read == value


def test_object_is_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        strictjson.load_object(b"[]")
    assert caught.value.reason == "json-type"


@pytest.mark.parametrize("depth", [1, 2, 31, 32, 33, 34, 63, 64, 65, 200])
@pytest.mark.parametrize("kinds", ["[", "{", "[{", "{["])
def test_depth_is_counted_exactly(depth: int, kinds: str) -> None:
    openers = [kinds[i % len(kinds)] for i in range(depth)]
    text = "".join("[" if o == "[" else '{"k":' for o in openers) + '"x]["' if depth else ""
    text += "".join("]" if o == "[" else "}" for o in reversed(openers))
    padded = f"[0,{text},[],{{}}]"
    for data, nested in ((text, depth), (padded, depth + 1)):
        if nested <= 32:
            strictjson.loads(data.encode())
        else:
            with pytest.raises(InputError) as caught:
                strictjson.loads(data.encode())
            assert caught.value.reason == "json-too-deep"


@pytest.mark.parametrize(
    "data", [b'"' + b'\\"' * 400_000 + b"\\", b'"a' * 400_000, b"[" * 20 + b"]" * 40, b"[}" * 10, b'"\\']
)
def test_what_does_not_pair_is_the_parsers_to_refuse_and_fast(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        strictjson.loads(data)
    assert caught.value.reason == "json-syntax"


def test_whole_surrogate_pairs_are_characters() -> None:
    assert strictjson.loads(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
