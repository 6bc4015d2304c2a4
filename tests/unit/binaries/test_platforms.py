from __future__ import annotations

import pytest

from wheelmark.binaries.platforms import floor_of, needed
from wheelmark.errors import InputError


@pytest.mark.parametrize(
    "version",
    [
        "GLIBC_2.2.5",
        "GLIBC_2.14",
        "GLIBC_2.28",
        "GLIBCXX_3.4",
        "GLIBCXX_3.4.24",
        "CXXABI_1.3.11",
        "CXXABI_TM_1",
        "CXXABI_FLOAT128",
        "GCC_7.0.0",
        "ZLIB_1.2.9",
    ],
)
def test_what_manylinux_2_28_grants(version: str) -> None:
    assert floor_of("manylinux_2_28_x86_64").grants(version)


@pytest.mark.parametrize(
    "version",
    [
        "GLIBC_2.29",
        "GLIBC_2.100",
        "GLIBC_3.0",
        "GLIBC_PRIVATE",
        "GLIBC_ABI_DT_RELR",
        "GLIBCXX_3.4.25",
        "CXXABI_1.3.12",
        "CXXABI_ARM_1.3.3",
        "GCC_8.0.0",
        "OPENSSL_3.0.0",
        "GLIBC_2.14x",
        "",
    ],
)
def test_what_manylinux_2_28_does_not_grant(version: str) -> None:
    assert not floor_of("manylinux_2_28_x86_64").grants(version)


def test_old_spellings_and_machines() -> None:
    assert floor_of("manylinux2014_x86_64") == floor_of("manylinux_2_17_x86_64")
    assert floor_of("manylinux_2_17_aarch64").newest["GLIBC"] == (2, 18)
    assert not floor_of("manylinux_2_28_aarch64").grants("CXXABI_FLOAT128")


@pytest.mark.parametrize(
    "platform",
    ["", "any", "linux_x86_64", "manylinux_2_28_i686", "manylinux_2_99_x86_64", "manylinux1_aarch64"],
)
def test_tags_that_promise_nothing_known(platform: str) -> None:
    with pytest.raises(InputError) as caught:
        floor_of(platform)
    assert caught.value.reason == "platform-unknown"


def test_newest_version_of_each_family() -> None:
    versions = {
        "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.4"),
        "libstdc++.so.6": ("GLIBCXX_3.4.9", "GLIBCXX_3.4.21", "CXXABI_TM_1"),
    }
    assert needed(versions) == {"GLIBC": "2.14", "GLIBCXX": "3.4.21"}
