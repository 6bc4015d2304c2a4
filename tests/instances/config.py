"""The two files of a private instance, made by cosign as its operators make them, and the third that joins them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from instances.oidc import Issuer

START = "2020-01-01T00:00:00Z"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Log:
    """A Rekor."""

    url: str
    version: int
    origin: str
    """First line of its checkpoints."""

    @property
    def key(self) -> str:
        """Name of the file with its public key."""
        return f"log{self.version}.pub.pem"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Services:
    """A running instance; its chains and public keys lie in ``folder``."""

    folder: Path
    issuer: Issuer
    fulcio: str
    logs: tuple[Log, ...]
    timestamps: str
    """Empty where it has no timestamp authority: then the log's promise says when."""
    certificates: str
    """Address of the certificate transparency log."""

    def configure(self, cosign: str) -> Path:
        """``client_trust_config.json`` from ``cosign trusted-root create`` and ``cosign signing-config create``."""
        root, signing = self.folder / "trusted_root.json", self.folder / "signing_config.json"
        trusted = [
            f"--fulcio=url={self.fulcio},certificate-chain={self.folder}/fulcio.crt.pem,start-time={START}",
            f"--ctfe=url={self.certificates},public-key={self.folder}/ct.pub.pem,start-time={START}",
        ]
        service = f"start-time={START},operator=private"
        used = [
            f"--fulcio=url={self.fulcio},api-version=1,{service}",
            f"--oidc-provider=url={self.issuer.url},api-version=1,{service}",
            "--rekor-config=ANY",
        ]
        for log in self.logs:
            origin = f",origin={log.origin}" if log.version > 1 else ""
            key = self.folder / log.key
            # Clients compare a checkpoint's origin with the address in the root, not with where they sent an entry.
            named = f"https://{log.origin}" if log.version > 1 else log.url
            trusted.append(f"--rekor=url={named},public-key={key},start-time={START}{origin}")
            used.append(f"--rekor=url={log.url},api-version={log.version},{service}")
        if self.timestamps:
            chain = self.folder / "tsa.crt.pem"
            trusted.append(f"--tsa=url={self.timestamps},certificate-chain={chain},start-time={START}")
            used += [f"--tsa=url={self.timestamps},api-version=1,{service}", "--tsa-config=ANY"]
        _run([cosign, "trusted-root", "create", "--out", str(root), *trusted])
        _run([cosign, "signing-config", "create", "--out", str(signing), *used])
        config = self.folder / "client_trust_config.json"
        value = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": json.loads(root.read_bytes()),
            "signingConfig": json.loads(signing.read_bytes()),
        }
        config.write_text(json.dumps(value))
        return config


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
