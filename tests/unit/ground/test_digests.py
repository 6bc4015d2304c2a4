from __future__ import annotations

import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelmark import digests
from wheelmark.errors import InputError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_canonical_json_is_rfc_8785(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        with pytest.raises(InputError):
            digests.canonical_json(value)
    else:
        assert digests.canonical_json(value) == expected


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (
            {"b": 1, "a": [True, None, '\u20ac$\u000f\nA\'B"\\\\"/']},
            '{"a":[true,null,"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"],"b":1}',
        ),
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'),
        ([1e21, 333333333.33333329, 4.50, 2e-3, 1e-27, 1.0], "[1e+21,333333333.3333333,4.5,0.002,1e-27,1]"),
        ({"\x7f": "\x7f\u2028"}, '{"\x7f":"\x7f\u2028"}'),
        ((1, (2,)), "[1,[2]]"),
        (9007199254740991, "9007199254740991"),
        ("NaN 1.5 e", '"NaN 1.5 e"'),
    ],
)
def test_known_answers(value: Any, data: str) -> None:
    assert digests.canonical_json(value) == data.encode()
    assert digests.canonical_json([value]) == b"[" + data.encode() + b"]"


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 2**53, -(2**60), {1: 2}, {"a": {None: 1}}, {1, 2}, b"x", "\ud800", {"\ud800": 1}],
)
def test_what_json_cannot_say(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        digests.canonical_json(value)
    assert caught.value.reason == "json-value"
