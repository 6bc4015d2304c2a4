"""Where packages come from on this machine: pip's own settings, handed to uv when it runs.

uv does not read pip's configuration. A machine that gives pip a wheel folder, a private index or a
certificate bundle would otherwise need the same again for uv. Nothing that is read here is ever written to a file
of the project: locks name versions and hashes, not places.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

_LINE = re.compile(r"(?P<section>global|install|:env:)\.(?P<key>[a-z-]+)=(?P<value>.*)")
# Later sections win, as in pip: a command's section over the global one, the environment over files.
_SECTIONS = ("global", "install", ":env:")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageSources:
    """Indexes and folders that packages are looked for in."""

    index: str = ""
    """The main index; empty: uv's own default."""
    extra: tuple[str, ...] = ()
    """Further indexes, in pip's order."""
    find_links: tuple[str, ...] = ()
    """Folders or pages with links to distributions."""
    certificate: str = ""
    """PEM bundle that index servers are checked against."""
    trusted_hosts: tuple[str, ...] = ()
    no_index: bool = False
    proxy: str = ""

    def shared(self) -> PackageSources:
        """Only what other machines see too: no folders, no indexes on this disk.

        Locks are resolved from these, so that they do not depend on what lies on the machine that wrote them.
        """
        remote = tuple(url for url in self.extra if urlsplit(url).scheme in {"http", "https"})
        index = self.index if urlsplit(self.index).scheme in {"http", "https"} else ""
        return dataclasses.replace(self, index=index, extra=remote, find_links=(), no_index=False)

    def as_uv_environment(self) -> dict[str, str]:
        """Environment variables for uv; not arguments, which other users of the machine could read."""
        values = {
            "UV_DEFAULT_INDEX": self.index,
            "UV_INDEX": " ".join(self.extra),
            "UV_FIND_LINKS": ",".join(self.find_links),
            "SSL_CERT_FILE": self.certificate,
            "UV_INSECURE_HOST": " ".join(self.trusted_hosts),
            "UV_NO_INDEX": "1" if self.no_index else "",
            "ALL_PROXY": self.proxy,
        }
        return {name: value for name, value in values.items() if value}


def read_sources(environment: Mapping[str, str] | None = None) -> PackageSources:
    """Pip's settings, by ``pip config list`` (files and ``PIP_*`` variables), or from ``PIP_*`` alone without pip.

    Args:
        environment: Environment variables; default: this process's.
    """
    variables = dict(os.environ if environment is None else environment)
    pip = _pip_command()
    listed = ""
    if pip:
        done = subprocess.run(
            [*pip, "config", "list"],
            env={**variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        listed = done.stdout if done.returncode == 0 else ""
    return sources_from(listed, variables)


def sources_from(listed: str, variables: Mapping[str, str]) -> PackageSources:
    """Settings from the text of ``pip config list`` and from ``PIP_*`` variables, which win."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listed.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match:
            sections[match["section"]][match["key"]] = _literal(match["value"])
    for name, value in variables.items():
        if name.startswith("PIP_"):
            sections[":env:"][name.removeprefix("PIP_").lower().replace("_", "-")] = value
    settings: dict[str, str] = {}
    for section in _SECTIONS:
        settings |= sections[section]
    return PackageSources(
        index=settings.get("index-url", ""),
        extra=tuple(settings.get("extra-index-url", "").split()),
        find_links=tuple(settings.get("find-links", "").split()),
        certificate=settings.get("cert", ""),
        trusted_hosts=tuple(settings.get("trusted-host", "").split()),
        no_index=settings.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        proxy=settings.get("proxy", ""),
    )


def _literal(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return str(value)


def _pip_command() -> list[str]:
    """Pip of this interpreter, else the one on ``PATH``: both read the same machine-wide and user files."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found else []
