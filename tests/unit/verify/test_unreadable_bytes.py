"""A file that can be opened and not read: a broken disk, or memory that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelmark.errors import InputError
from wheelmark.oci.layout import Layout
from wheelmark.plainfiles import read_bounded
from wheelmark.verify import kernelpack


def test_a_file_that_fails_while_it_is_read_is_unreadable() -> None:
    with pytest.raises(InputError) as caught:
        read_bounded(Path("/proc/self/mem"), 100)
    assert caught.value.reason == "unreadable"


def test_an_object_of_a_kernel_pack_that_fails_while_it_is_read() -> None:
    with pytest.raises(InputError) as caught:
        kernelpack._read_object(Path("/proc/self/mem"))
    assert caught.value.reason == "unreadable"


def test_a_document_of_an_image_that_fails_while_it_is_read() -> None:
    layout = object.__new__(Layout)
    layout.path = Path("/proc/self")
    with pytest.raises(InputError) as caught:
        layout._small("mem", 100)
    assert caught.value.reason == "unreadable"
