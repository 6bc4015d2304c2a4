"""Every reason that the verifier refuses for: the code, what kind of answer it is, what it means, and the next step.

The codes are stable: scripts and policies depend on them. ``docs/reference/reason-codes.md`` is written from
this table (``wheelmark docs``) and a test compares them. Codes of the rooms below
(``strictjson``, ``attest``, ``binaries``, ``manifest``, ``trust``) that can end a verification stand here too;
a code that does not is answered with the severest answer, REJECT.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Answer(enum.Enum):
    """The kind of an answer; each has its exit code (``wheelmark.errors.Exit``)."""

    REJECT = "REJECT"
    """Bad evidence: exit 1."""
    MISSING = "MISSING"
    """Evidence that the policy asks for is not there: exit 3."""
    UNCHECKED = "UNCHECKED"
    """Could not be checked: exit 4."""
    CONFIG = "CONFIG"
    """Policy or trust root unusable: exit 5."""
    INPUT = "INPUT"
    """Malformed, or over a limit: exit 6."""


_TABLE: Mapping[Answer, Mapping[str, Mapping[str, str]]] = {
    Answer.CONFIG: {
        "Policy": {
            "policy-absent": "The policy file cannot be read.",
            "policy-syntax": "The policy is not TOML.",
            "policy-version": "The policy's schema version is not one that this verifier knows.",
            "policy-key": "The policy has a key that is not known; the nearest known one is named.",
            "policy-value": "A value of the policy has the wrong type or is not one of the words allowed.",
            "policy-empty": "The policy names no root, no signer, no requirement, or a requirement of no evidence.",
            "policy-contradiction": "Two parts of the policy contradict each other, or one names what is not there.",
            "policy-development": "`this-machine` outside a policy that says `development = true`.",
            "policy-permissions": "Somebody else could have written the policy, or a root or key that it names.",
            "policy-inside": "The policy lies in the release that it is to judge.",
            "policy-no-rule": "The policy has no requirement for this kind of artifact and target.",
            "clock-zone": "The clock has no time zone.",
        },
        "Trust root": {
            "root-absent": "The root's file cannot be read, or this machine has no embedded instance.",
            "root-digest": "The root's bytes have another digest than the policy names.",
            "root-shape": "The file is not a Sigstore trusted root, or has a malformed field.",
            "root-no-start": "A log or an authority of the root has no start of validity.",
            "root-unreachable": "The TUF repository cannot be reached; the earlier root stays.",
            "root-update": "What the TUF repository serves is refused: signature, expiry, version or bytes.",
            "root-bootstrap": "The first `root.json` is absent, is no TUF root, or is not the one that trust began with.",
            "root-url": "Not an address of a TUF repository.",
            "root-name": "Not a name for a root, or one that is taken.",
            "root-empty": "The root names no certificate authority or no transparency log.",
            "root-age": "TUF has not vouched for the root in as long as the policy allows.",
            "key-absent": "A key's file cannot be read.",
            "key-digest": "A key's file has another digest than the policy names.",
            "key-shape": "A key's file is no PEM public key, or of a kind that is not taken.",
            "state-permissions": "Others can enter the state directory.",
            "state-directory": "The state directory cannot be used.",
            "memory": "The memory of what this machine has seen is torn or malformed.",
            "audit-log": "The audit log cannot be written, is no private plain file, or was changed.",
            "state-full": "No room is left in the state directory for a private copy.",
        },
        "Container engine": {
            "hook-config": "The hook's configuration is absent, malformed, or for another kind of engine.",
            "store": "The evidence store is absent, none of ours, or others could write in it.",
        },
    },
    Answer.INPUT: {
        "Bounds and syntax": {
            "json-too-large": "A JSON document has more bytes than the limit.",
            "json-too-deep": "A JSON document is nested deeper than the limit.",
            "json-too-long": "An array, object or string is longer than the limit.",
            "json-duplicate-key": "A key stands twice in one object.",
            "json-number": "A number that JSON has not, or with too many digits.",
            "json-syntax": "Not UTF-8, or not JSON.",
            "json-type": "The document is not an object.",
            "json-value": "A value that canonical JSON cannot say.",
            "bundle-version": "A bundle of a version that is not known.",
            "bundle-shape": "A bundle with an unknown, absent or malformed member.",
            "certificate-malformed": "The bundle's certificate is not DER of a certificate.",
            "timestamp-malformed": "The bundle's timestamp is not one DER spelling of an RFC 3161 response.",
            "manifest": "`release.json` is malformed or not in canonical form.",
            "manifest-version": "`release.json` has a schema version that is not known.",
            "manifest-path": "`release.json` lists an unsafe path.",
            "not-a-release": "The path is neither a release directory, a wheel, an image layout nor a kernel pack.",
            "image-reference": "The layout holds no image of that name or digest, more than one where one was asked for, or its tag leads to another digest than was asked for with it.",
            "input-limit": "More files than a release may have.",
            "facts": "These are no facts of this verifier.",
            "input": "Malformed input.",
            "hook-state": "The container runtime names no container or no bundle.",
        },
    },
    Answer.REJECT: {
        "Certificate": {
            "untrusted-root": "No root of the policy issued the signing certificate: another Sigstore instance.",
            "root-in-bundle": "The bundle carries a root certificate.",
            "certificate-missing": "The bundle has no signing certificate.",
            "key-bundle": "The bundle was signed with a bare key, and the policy names no key.",
            "key-unknown": "The bundle was signed with a bare key that is none of the policy's.",
            "chain": "The certificate does not chain to the root's authority.",
            "certificate-expired": "Signed outside the certificate's validity.",
            "certificate-usage": "The certificate is not for code signing.",
            "certificate-key": "The signing key is of a kind not known, or cannot sign this kind of content.",
            "certificate-identity": "The certificate does not name exactly one identity and one issuer.",
            "sct": "The certificate timestamp is absent, malformed, or not signed by a log of the root.",
        },
        "Signature and log": {
            "signature": "The signature is not the signer's over this content.",
            "log-missing": "The bundle has not exactly one log entry.",
            "log-kind": "The log entry is of a kind not known.",
            "log-entry": "The log entry is about something else than the bundle.",
            "log-unknown": "The log is none of the root's.",
            "proof-missing": "No inclusion proof, or one without a checkpoint.",
            "proof": "The inclusion proof does not lead to its root hash.",
            "checkpoint": "The checkpoint is malformed, about another tree, or not signed by the log.",
            "promise": "The inclusion promise is not signed by the log.",
            "unauthenticated": "A field that no signature covers, in a bundle that has to be canonical.",
            "not-canonical": "A bundle under a canonical root is not in the one form that Wheelmark writes.",
            "second-opinion": "sigstore-python does not accept the bundle.",
            "library": "A library failed in a way that is not foreseen.",
        },
        "Time": {
            "time-missing": "No signed time.",
            "time-unsigned": "A time that is claimed and not signed.",
            "timestamp-other": "The timestamp is over another signature, or stands twice.",
            "timestamp-untrusted": "The timestamp is by no authority of the root.",
            "ca-window": "The certificate authority was not trusted at the signed time.",
            "ct-window": "The certificate transparency log was not trusted at the signed time.",
            "log-window": "The transparency log was not trusted at the signed time.",
            "tsa-window": "The timestamp authority was not trusted at the signed time.",
            "clock-behind": "The clock is behind a signed time of the evidence, or behind the last time that this machine saw.",
        },
        "Statement": {
            "payload-type": "The envelope does not hold an in-toto statement.",
            "statement-expected": "A signature over a digest where a statement is asked for.",
            "statement-type": "A statement of a type that is not known.",
            "statement-fields": "A statement with unknown or absent members.",
            "statement-subjects": "A statement with no subjects, a name twice, or a subject without sha256.",
            "statement-digest": "A digest of a statement is malformed or of an unknown algorithm.",
            "statement-predicate-type": "The predicate type is no URI.",
            "statement-predicate": "The predicate is no object.",
            "statement-resource": "A resource descriptor of a predicate is malformed.",
            "provenance": "The provenance predicate is malformed.",
            "sbom-predicate": "The SBOM predicate is no CycloneDX document.",
            "test-result": "The test result is malformed or contradicts its own evidence.",
            "vulns": "The vulnerability scan is malformed.",
            "vex": "The VEX document is malformed.",
            "promotion": "The promotion is malformed, or says something else than PASSED.",
            "evidence": "An evidence record is malformed.",
        },
        "Signer": {
            "issuer-not-vouched": "The root that verified may not vouch for the certificate's issuer.",
            "signer-identity": "The certificate names an identity that no signer rule of this root has.",
            "signer-issuer": "The identity is one that the policy knows, from another issuer.",
            "signer-not-allowed": "The signer is known, and the requirement does not take it for this.",
            "key-expected": "The bundle was signed with a certificate where the policy names keys.",
        },
        "What the evidence is about": {
            "subject-digest": "The statement is about other bytes under this name, or not about this artifact.",
            "subject-name": "The statement is about these bytes under another name.",
            "subject-lacking": "The provenance is not about every file of the release.",
            "subject-extra": "The provenance is about a file that the release does not hold.",
            "message-digest": "The bundle's messageDigest is another artifact's.",
            "target": "The evidence is about another target than the release says.",
            "sbom-document": "The signed SBOM differs from the document in the release.",
            "sbom-subject": "The SBOM describes other bytes, or not all of the wheel's files.",
            "sbom-format": "The SBOM is no CycloneDX 1.6 document.",
            "sbom-field": "A field of the SBOM is absent or malformed.",
            "sbom-twice": "The SBOM names a file or a reference twice.",
            "sbom-unexplained": "The SBOM lists a file in no component.",
            "evidence-file": "An evidence file differs from what the signed test result says.",
            "levels": "`release.json` states other levels than the signed test result.",
            "provenance-release": "The provenance states other parameters than `release.json`: project, version, targets, snapshot.",
            "builder": "The provenance names a builder that the policy does not.",
            "source": "None of the provenance's repositories is one that the policy names.",
        },
        "Gates": {
            "gate-failed": "A gate FAILED on this artifact.",
            "level-too-low": "A gate's evidence has a lower level than the policy asks for.",
            "vulnerable": "A known vulnerability applies that is worse than the policy lets pass, and no VEX sets it aside.",
            "advisory-age": "The scan's advisory data is older than the policy allows, or dated in the future.",
            "scan-incomplete": "The scan did not ask for a component that has a service, or nothing signed says what it asked for.",
        },
        "Operator's word": {
            "denied": "The artifact, something in it, or its release is on the policy's deny list.",
            "driver-too-new": "A kernel needs a newer driver than the oldest that the policy names.",
            "torch-range": "A version of torch that the policy names is outside the range that the wheel declares.",
        },
        "Container start": {
            "hook-no-image": "The container is of no image that the engine keeps.",
            "hook-unknown-image": "The container's image was not verified on this machine.",
            "hook-timeout": "The hook had no answer in time: something holds a lock or a disk does not answer.",
            "hook-output": "The container's annotations would lead what hooks say into a file of its choice.",
            "hook-storage": "The engine's records of a container and its image contradict each other.",
            "store-changed": "What the evidence store keeps of an image is torn or was changed.",
            "engine-digest": "The container engine keeps what it was given under another digest.",
        },
        "Channel": {
            "promotion-signer": "The promotion is by nobody whose promotions count for this channel.",
            "promotion-channel": "The promotion is for another channel or project.",
            "promotion-expired": "The promotion has run out.",
            "promotion-rollback": "A later promotion of this channel was accepted on this machine before.",
        },
        "Wheel bytes": {
            "wheel-zip": "The wheel is no strict zip archive.",
            "wheel-duplicate": "Two entries of the wheel have one name.",
            "wheel-path": "An entry's path is absolute, leaves the tree, or is a device path.",
            "wheel-link": "The wheel holds a link.",
            "wheel-limit": "The wheel is over a size or ratio limit.",
            "wheel-record": "RECORD is malformed, or has another hash or size.",
            "wheel-unlisted": "A file of the wheel is not in RECORD.",
            "wheel-missing": "RECORD lists a file that the wheel does not hold.",
            "wheel-name": "File name, METADATA and dist-info disagree on name or version.",
            "wheel-tags": "File name and WHEEL disagree on tags.",
            "wheel-metadata": "METADATA or WHEEL is malformed.",
            "kernel-manifest": "The kernel manifest is malformed.",
            "object-missing": "The kernel manifest lists a code object that is not there.",
            "object-unlisted": "A code object that the kernel manifest does not list, or outside its folder.",
            "object-empty": "A code object of zero bytes.",
            "object-size": "A code object of another size than the manifest says.",
            "object-digest": "A code object with another digest than the manifest says.",
            "object-malformed": "Not a code object that can be read.",
            "object-arch": "A code object for another arch, or in another format, than the manifest says.",
            "object-entry": "A kernel that no variant names, or a variant whose kernel is not in the object.",
            "object-facts": "Registers, spills, shared memory or parameters differ from the manifest.",
            "object-toolkit": "Another toolkit, or a driver floor that does not follow from it.",
            "kernel-manifest-target": "The kernel manifest is for another target than the wheel.",
            "kernel-manifest-missing": "Code objects without a kernel manifest, or a GPU wheel without either.",
        },
        "Image bytes": {
            "image-layout": "The directory is no OCI image layout of version 1.0.0.",
            "image-unaccounted": "A file of the layout that nothing refers to, or a link.",
            "image-missing": "A blob that a manifest lists is not there.",
            "image-blob": "A blob has another digest or size than what refers to it says.",
            "image-manifest": "An index, manifest or configuration is malformed, or of a type that is not read.",
            "image-digest": "A digest of another algorithm than sha256.",
            "image-diff-id": "The layers are not those that the configuration names.",
            "image-layer": "A layer is no strict tar archive, or its compression is broken.",
            "image-path": "A layer's entry or link leaves the tree, or is a device.",
            "image-limit": "A layer is over a size, count or ratio limit.",
            "image-platform": "Index, configuration and target disagree on the platform.",
            "image-target": "The image is for another target than was asked for, or for none that is known.",
            "image-derived": "The layout's list, or what is attached to an image, is not what a release of these images has.",
            "image-stand-in": "The image holds a stand-in for its dependencies, and the policy does not allow it.",
        },
        "Release directory": {
            "unaccounted-file": "A file that nothing accounts for, a link, pipe or device, or a copy of a bundle.",
            "file-missing": "A file that `release.json` lists is not there.",
            "file-digest": "A listed file has other bytes.",
            "statement-bytes": "A statement file differs from the signed payload, or has no bundle.",
            "statement-file": "A bundle has no statement file.",
            "sibling-bundle": "The bundle beside a wheel is not the byte copy of the provenance bundle, or there is none that holds to compare it with.",
            "root-copy": "`trust/trusted_root.json` differs from the policy's root.",
            "partial": "The release is partial, and the policy does not allow it.",
            "snapshot": "The release is a snapshot, and the policy does not allow it.",
            "kernel-copy": "The code objects in the release are not those of the wheel.",
            "release-target": "A wheel, and the list of targets or the target that it stands under, disagree.",
        },
        "Installed files": {
            "installed-changed": "An installed file has other bytes than the verified wheel, or is no plain file.",
            "installed-missing": "A file of the verified wheel is not there any more.",
            "installed-added": "A file that neither the wheel nor its installation accounts for.",
            "installed-replaced": "What is installed under this name was put there by something else since.",
            "receipt-malformed": "The receipt of the installation is not one that Wheelmark wrote.",
        },
    },
    Answer.MISSING: {
        "Evidence": {
            "no-bundle": "No bundle is there for this artifact.",
            "image-index": "No statement is about the index that was asked for, whatever is said of the images that it lists.",
            "predicate-missing": "A predicate that the policy asks for is not among the signed statements.",
            "gate-missing": "A gate that the policy asks for has no result.",
            "wheel-absent": "The release holds no wheel.",
            "promotion-missing": "No promotion to the channel is about this artifact or its release.",
            "receipt-absent": "There is no receipt of such an installation on this machine.",
        },
    },
    Answer.UNCHECKED: {
        "Not checked": {
            "gate-unchecked": "A gate is UNCHECKED, and the policy does not let that pass.",
            "unreadable": "A file cannot be read.",
            "image-compression": "A layer is compressed in a way that is not read here (zstd), or is no OCI 1.1 layer.",
        },
    },
}

_AGAIN = "do not use it; get it again from its publisher, and tell them where this came from"
_PUBLISHER = "do not use it, and tell its publisher: they have to make or sign it anew"
_TRUST = "do not use it, unless you mean to trust this signer: then the policy has to say so"

_NEXT_OF_GROUP: Mapping[str, str] = {
    "Policy": "mend the policy; `wheelmark policy check FILE` says what it means",
    "Trust root": "look at the root that the policy names; `wheelmark trust show` says which this machine has",
    "Bounds and syntax": "do not use it; get the file again from its publisher",
    "Container engine": "mend what it names; `wheelmark hook status` says what is installed, and whether it can be used",
    "Container start": "`wheelmark pull REF --policy FILE` verifies the image and keeps its evidence; then start it again",
    "Certificate": _AGAIN,
    "Signature and log": _AGAIN,
    "Time": _AGAIN,
    "Statement": _PUBLISHER,
    "Signer": _TRUST,
    "What the evidence is about": _AGAIN,
    "Gates": "do not use it; wait for a release that passes, or look at its evidence with its publisher",
    "Operator's word": "use another release, or change the policy if its word no longer holds",
    "Channel": "ask whoever promotes to this channel; use what was promoted last until then",
    "Wheel bytes": _AGAIN,
    "Image bytes": _AGAIN,
    "Release directory": "do not use it; get the whole release again from its publisher, and tell them",
    "Installed files": "find out who changed it; `wheelmark install REF --policy FILE --replace` puts the verified bytes back",
    "Evidence": "ask its publisher for what is lacking; nothing says that the artifact itself is bad",
    "Not checked": "have it checked where that is possible; until then it counts as not verified",
}
_NEXT: Mapping[str, str] = {
    "hook-timeout": "find out what holds the store or the log (`fuser -v` on their files), or which disk is slow; then start it again",
    "policy-absent": "name a policy file that you may read (--policy)",
    "policy-permissions": "make the file and every folder above it yours, and writable by nobody else (chmod go-w)",
    "policy-inside": "keep the policy outside of what it judges: copy one that you have read, and name that",
    "policy-no-rule": "add a [[require]] for this kind and target, or do not use the artifact under this policy",
    "policy-development": "say `development = true` in a policy for trying things out; name a real root in any other",
    "clock-zone": "set the clock with a time zone",
    "root-absent": "name the root's file in the policy; on the machine that signs: `wheelmark trust create`",
    "root-digest": "find out who changed the root; put the right one back, or name the new digest once you trust it",
    "root-unreachable": "try again when the repository answers, or `wheelmark trust import` a root that you were given",
    "root-update": "keep the earlier root, and ask whoever runs the repository",
    "root-bootstrap": "get the first root.json again by a way that you trust",
    "root-url": "give the repository's https address",
    "root-name": "choose another name",
    "root-age": "`wheelmark trust update`, then verify again",
    "key-absent": "name the key's file in the policy, one that you may read",
    "key-digest": "find out who changed the key; put the right one back, or name the new digest once you trust it",
    "key-shape": "get the key as a PEM public key of a kind that is taken",
    "state-permissions": "chmod 700 the state directory",
    "state-directory": "name a folder of yours in WHEELMARK_STATE",
    "memory": "keep the file for whoever looks into it, and begin with a new folder (--memory)",
    "audit-log": "`wheelmark audit-log FILE` says where; keep the file for whoever looks into it, and name a new one",
    "state-full": "make room in the state directory, and run it again",
    "not-a-release": "name a release directory, a wheel, an image layout or a kernel pack; a release is one once signed",
    "image-reference": "name one image of the layout with --reference",
    "manifest-version": "verify it with a newer Wheelmark",
    "bundle-version": "verify it with a newer Wheelmark",
    "facts": "remove the cache folder, and run it again",
    "input": "do what the text says; what cannot be read is not to be used",
    "untrusted-root": "do not use it, unless you mean to trust that instance: then the policy has to name its root",
    "key-bundle": _TRUST,
    "key-unknown": _TRUST,
    "certificate-expired": _PUBLISHER,
    "certificate-usage": _PUBLISHER,
    "certificate-key": _PUBLISHER,
    "certificate-identity": _PUBLISHER,
    "log-unknown": "do not use it; where the instance has a new log, `wheelmark trust update` brings its key",
    "not-canonical": "do not use it; get the bundle again from its publisher, as Wheelmark wrote it",
    "unauthenticated": "do not use it; get the bundle again from its publisher, as Wheelmark wrote it",
    "library": "report it as a defect of Wheelmark, with the file; until then it counts as bad",
    "time-missing": _PUBLISHER,
    "time-unsigned": _PUBLISHER,
    "timestamp-untrusted": _PUBLISHER,
    "ca-window": _PUBLISHER,
    "ct-window": _PUBLISHER,
    "log-window": _PUBLISHER,
    "tsa-window": _PUBLISHER,
    "clock-behind": "set this machine's clock, and verify again",
    "target": _PUBLISHER,
    "subject-lacking": "get the whole release again from its publisher; if it stays so, they have to sign it anew",
    "sbom-format": _PUBLISHER,
    "sbom-field": _PUBLISHER,
    "sbom-twice": _PUBLISHER,
    "sbom-unexplained": _PUBLISHER,
    "builder": _TRUST,
    "source": _TRUST,
    "level-too-low": "get a release with evidence of that level; or the policy asks for more than you need",
    "vulnerable": "wait for a release without it, or for a VEX by somebody whose word the policy takes",
    "advisory-age": "ask its publisher for a newer scan",
    "scan-incomplete": "ask its publisher for a whole scan",
    "denied": "do not use it: the policy says why",
    "driver-too-new": "use a release for the oldest driver that you run, or a newer driver and say so in the policy",
    "torch-range": "use a release for the torch that you run",
    "promotion-signer": "do not use it in this channel, unless the policy is to take promotions by this signer",
    "promotion-channel": "ask for a promotion to this channel, or name the channel that it is for",
    "promotion-expired": "ask for a new promotion",
    "promotion-rollback": "use what was promoted last; somebody may be serving you an older release",
    "image-index": "ask for the image by its own digest, or for the index that its publisher signed",
    "image-target": "name the target that it is for (--target), or get the image for yours",
    "unaccounted-file": "remove the file if you put it there; else get the whole release again, and tell its publisher",
    "root-copy": "do not take it for a root; `wheelmark trust update` if the instance has changed its own",
    "partial": "get the whole release, or say `allow_partial = true` in the policy if a part will do",
    "snapshot": "get a release of a commit, or say `allow_snapshot = true` in a policy for trying things out",
    "receipt-malformed": "find out who changed it; install again with --replace",
    "no-bundle": "name the bundle with --bundle; it is in `bundles/` of the release, and from its publisher",
    "receipt-absent": "put it there with `wheelmark install REF --policy FILE`, which writes a receipt; or name its --python",
    "wheel-absent": "get the whole release again from its publisher",
    "promotion-missing": "ask for a promotion to this channel, or use what was promoted to it",
    "gate-unchecked": "have the gate run where it can be, or let it pass in the policy (`unchecked`)",
    "unreadable": "make the file readable for you, and verify again",
    "image-compression": "have the image written with gzip or uncompressed layers, as OCI 1.1 has them",
}
"""What the operator can do, where it is something else than for the rest of the group."""

TABLE: Mapping[str, tuple[Answer, str, str]] = {
    code: (answer, group, text)
    for answer, groups in _TABLE.items()
    for group, codes in groups.items()
    for code, text in codes.items()
}
"""Code -> (answer, group, meaning)."""


def answer_of(code: str) -> Answer:
    """The kind of answer that a code stands for; an unknown one is the severest."""
    return TABLE[code][0] if code in TABLE else Answer.REJECT


def next_step(code: str) -> str:
    """What the operator can do about a refusal; for an unknown code what is right for the severest."""
    if code not in TABLE:
        return _AGAIN
    return _NEXT.get(code) or _NEXT_OF_GROUP[TABLE[code][1]]


def as_markdown() -> str:
    """The reference page."""
    lines = [
        "# Reason codes of the verifier",
        "",
        "<!-- generated by `wheelmark docs`; do not edit -->",
        "",
        "Exit codes: REJECT 1, MISSING 3, UNCHECKED 4, CONFIG 5, INPUT 6; the worst of several subjects counts",
        "(REJECT, then INPUT, MISSING, UNCHECKED).",
    ]
    for answer, groups in _TABLE.items():
        for group, codes in groups.items():
            lines += [
                "",
                f"## {answer.value}: {group}",
                "",
                "| code | meaning | next step |",
                "|---|---|---|",
            ]
            lines += [f"| `{code}` | {text} | {next_step(code)} |" for code, text in codes.items()]
    return "\n".join(lines) + "\n"
