"""The policy's model: whom to trust and what to ask for, as frozen dataclasses. Everything else is derived from it.

The TOML reader, the JSON Schema and the reference page follow these fields and their docstrings; ``Document`` is
what a file says, ``Policy`` the same with its roots and keys loaded. There are no patterns: every field of an
identity is compared literally.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path

from wheelmark.attest import predicates
from wheelmark.errors import ConfigError
from wheelmark.evidence import Level
from wheelmark.trust.keys import ManagedKey
from wheelmark.trust.roots import Root

SCHEMA_VERSION = 1
ANY = "*"
IMAGE_GATES = "image-"
"""How the names of gates begin that look at images."""
VERSION = "{version}"
"""In a signer's ``ref``: the version of what is being verified, literally (``refs/tags/v{version}``)."""


class Kind(enum.Enum):
    """What a requirement is about."""

    RELEASE = "release"
    """A whole release directory and everything in it."""
    WHEEL = "wheel"
    """One wheel, wherever it lies."""
    IMAGE = "image"
    """One container image, in an OCI layout directory."""
    KERNEL_PACK = "kernel-pack"
    """One directory of compiled kernels with their manifest."""


class Predicate(enum.Enum):
    """A kind of signed statement that a requirement may ask for."""

    PROVENANCE = "provenance"
    SBOM = "sbom"
    TEST_RESULT = "test-result"
    VULNERABILITIES = "vulnerabilities"

    @property
    def uri(self) -> str:
        """The in-toto predicate type."""
        return {
            Predicate.PROVENANCE: predicates.PROVENANCE,
            Predicate.SBOM: predicates.SBOM,
            Predicate.TEST_RESULT: predicates.TEST_RESULT,
            Predicate.VULNERABILITIES: predicates.VULNS,
        }[self]


class Severity(enum.Enum):
    """Qualitative severity of a vulnerability (FIRST, CVSS v3.1 section 5), mildest first."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    def exceeds(self, other: Severity) -> bool:
        """Whether this is worse than ``other``."""
        order = list(Severity)
        return order.index(self) > order.index(other)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RootRule:
    """``[[root]]``: a trust root, and what it may vouch for."""

    name: str
    """How signers and verdicts name it."""
    issuers: tuple[str, ...] = ()
    """OIDC issuers that the root may vouch for; a certificate with another one is refused. May be empty only where
    every signer under the root is a key."""
    level: str
    """What a signature under this root proves, in the operator's words; shown with every verdict."""
    source: str = ""
    """``this-machine``: the embedded instance of this machine. Only with ``development = true``."""
    path: Path | None = None
    """A trusted-root file (or a client trust configuration with one inside), relative to the policy."""
    sha256: str = ""
    """Digest that the file's bytes have to have; with ``tuf``, of the first ``root.json`` of the TUF repository."""
    tuf: str = ""
    """Instead of ``path``: name of a root that ``wheelmark trust update`` keeps fresh through TUF in the state directory."""
    max_root_age: int = 0
    """Days since TUF last vouched for the root; older is refused (``root-age``). Only with ``tuf``. Without it: no limit."""
    canonical: bool = False
    """Whether bundles under it have to be, byte for byte, in the form that Wheelmark writes, with no field that nothing
    authenticates. Always so for this machine."""
    second_opinion: bool = False
    """Whether sigstore-python has to accept each bundle too (imports it: about 0.4 s a process, twice the time a bundle)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signer:
    """``[[signer]]``: who may sign, literally, under one root: an exact identity, a GitHub workflow, or a key."""

    name: str
    """How requirements name it."""
    root: str
    """The root under which it counts."""
    issuer: str = ""
    """The OIDC issuer, literally; one of the root's. Not with ``key``."""
    identity: str = ""
    """The certificate's subject alternative name, literally and whole: the first way to say who."""
    repository: str = ""
    """Source repository, ``https://github.com/OWNER/NAME`` (Fulcio extension .12): the second way, with ``workflow`` and
    ``ref``."""
    workflow: str = ""
    """Path of the workflow in the repository (``.github/workflows/release.yml``), or for a reusable workflow elsewhere its
    whole ``https://…@ref``: compared with the subject alternative name and extension .9."""
    ref: str = ""
    """Git ref that the run was for (extension .14); ``{version}`` in it stands for the version of what is verified."""
    key: Path | None = None
    """A PEM public key, relative to the policy, of someone who signs with a bare key and logs the signature under the
    root: the third way, with ``sha256``."""
    sha256: str = ""
    """Digest that the key file's bytes have to have."""
    key_id: str = ""
    """Not in TOML: sha256 of the loaded key's SubjectPublicKeyInfo, hexadecimal; empty for a certificate's signer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirement:
    """``[[require]]``: what has to be there, by whom, for one kind of artifact, some targets and a channel."""

    kind: Kind
    """What it is about."""
    targets: tuple[str, ...] = (ANY,)
    """Target ids, or ``*``; a requirement that names the target goes before one with ``*``."""
    channel: str = ""
    """Only for what is asked for in this channel (``--channel``); it then has to be promoted there. Without it: for no
    channel."""
    promoters: tuple[str, ...] = ()
    """Names of signers whose promotions count. Needed with ``channel``, and only there."""
    predicates: tuple[Predicate, ...]
    """Signed statements that have to be there."""
    signers: tuple[str, ...]
    """Names of signers whose statements count."""
    builders: tuple[str, ...] = ()
    """Builder ids of the provenance, one of which it has to name, literally. Without it: any."""
    sources: tuple[str, ...] = ()
    """Source repositories, one of which has to be among the provenance's resolved dependencies: ``https://HOST/PATH``, as
    there without ``git+`` and the ref. Without it: any."""
    runners: tuple[str, ...] = ()
    """Names of signers whose own test results let evidence of another machine count at its level, not at ``static``."""
    gates: tuple[str, ...] = ()
    """Gates that have to have a result. In a requirement of kind ``release`` those named ``image-…`` are asked of images, the
    others of wheels."""
    level: Level = Level.STATIC
    """Lowest evidence level of a gate that PASSED."""
    levels: Mapping[str, Level] = dataclasses.field(default_factory=dict)
    """Gate -> a lowest level of its own."""
    unchecked: tuple[str, ...] = ()
    """Gates that may be UNCHECKED. The verdict still says which were."""
    worst: Severity = Severity.NONE
    """Worst severity of a known vulnerability that may be there; one of unknown severity counts as ``critical``."""
    advisory_age: int = 0
    """Days that the scan's advisory data may be old, by the data's own date and not the run's. Without it: no limit."""
    vex_signers: tuple[str, ...] = ()
    """Names of signers whose OpenVEX statements (``not_affected``, ``fixed``) set a vulnerability aside. Without it: nobody."""
    driver: str = ""
    """Oldest driver on the machines this is for; an artifact whose kernels need a newer one is refused. Without it: any."""
    torch: tuple[str, ...] = ()
    """Versions of torch on those machines; each has to lie in the range that the wheel declares. Without it: any."""
    allow_partial: bool = False
    """Whether a release may lack targets of its declaration."""
    allow_snapshot: bool = False
    """Whether a release may come from a tree with uncommitted changes."""
    allow_stand_in: bool = False
    """Whether an image may hold a stand-in for the dependencies of its recipe, and so be marked as not releasable."""

    def lowest(self, gate: str) -> Level:
        """The lowest level that a gate's evidence may have."""
        return self.levels.get(gate, self.level)

    def gates_of(self, *, image: bool) -> tuple[str, ...]:
        """The gates that are asked of a wheel or an image: a release holds both, and one requirement speaks of both."""
        if self.kind is not Kind.RELEASE:
            return self.gates
        return tuple(gate for gate in self.gates if gate.startswith(IMAGE_GATES) is image)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Denial:
    """``[[deny]]``: bytes that are refused whoever signed them."""

    sha256: str
    """Digest of a wheel, image, code object, kernel manifest or ``release.json``."""
    why: str
    """Shown with the refusal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """``[[example]]``: an artifact and the answer that the policy has to give; run by ``wheelmark policy test``."""

    name: str
    path: Path
    """What is verified, relative to the policy."""
    answer: str
    """``ACCEPT``, ``REJECT``, ``MISSING``, ``UNCHECKED``, ``CONFIG`` or ``INPUT``."""
    reason: str = ""
    """A reason code that has to be among those given."""
    channel: str = ""
    """The channel that it is asked for in. Without it: none."""
    at: str = ""
    """The clock, RFC 3339 with a zone. Without it: now."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A policy as its file says it; the key ``schema = 1`` stands before everything."""

    development: bool = False
    """Whether ``this-machine`` may be a root. For the machine that signed, and for nothing else."""
    root: tuple[RootRule, ...]
    signer: tuple[Signer, ...]
    require: tuple[Requirement, ...]
    deny: tuple[Denial, ...] = ()
    example: tuple[Example, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A whole policy, its roots and keys loaded and their digests checked."""

    source: str
    """Where it was read from, for messages."""
    sha256: str
    roots: tuple[Root, ...]
    signers: tuple[Signer, ...]
    requirements: tuple[Requirement, ...]
    keys: tuple[ManagedKey, ...] = ()
    """The loaded keys of signers that have one."""
    denials: tuple[Denial, ...] = ()
    examples: tuple[Example, ...] = ()
    development: bool = False
    """Whether ``this-machine`` may be a root."""

    def root(self, name: str) -> Root:
        """The root of that name."""
        return next(root for root in self.roots if root.name == name)

    def requirement(self, kind: Kind, target: str, *, channel: str = "") -> Requirement:
        """The requirement for a target: one that names it, else the one for all.

        Args:
            kind: What is verified.
            target: Target id; empty for the release as a whole, or where a wheel's target is not known.
            channel: The channel that it is asked for in; empty for none.

        Raises:
            ConfigError: The policy has none (``policy-no-rule``).
        """
        for wanted in (target, ANY):
            for rule in self.requirements:
                if rule.kind is kind and rule.channel == channel and wanted in rule.targets:
                    return rule
        about = f"{kind.value} for {target!r:.80}" if target else kind.value
        about += f" in channel {channel!r:.80}" if channel else ""
        raise ConfigError(
            f"{self.source} has no requirement for a {about}",
            cause="what a policy does not speak of is not accepted",
            fix=f'add a [[require]] with kind = "{kind.value}"'
            + (f' and channel = "{channel:.80}"' if channel else ""),
            reason="policy-no-rule",
        )
