"""Many containers that start at the same time: each is judged, none is refused because another one was faster."""

from __future__ import annotations

import concurrent.futures
import json

from hooking import GOOD, Host

COUNT = 16


def test_containers_that_start_at_the_same_time(host: Host) -> None:
    """The time that one of them leaves in the memory is no later than what the clock says to another that reads it."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=COUNT // 2) as pool:
        started = list(pool.map(lambda _number: host.starts(GOOD), range(COUNT)))
    entries = [json.loads(line) for line in host.log.read_text(encoding="utf-8").splitlines()]
    assert all(started), {entry["reason"] for entry in entries if entry["verdict"] != "accepted"}
    assert len(entries) == COUNT
