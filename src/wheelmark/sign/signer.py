"""Sign in-toto statements with the ordinary sigstore client, and verify what was signed before it is used.

1. A token is got from the domain: minted in process, or from the surroundings.
2. The client asks for a certificate, signs the statement in a DSSE envelope, has the signature timestamped and
   logged. It gives a new key and certificate well before the ten minutes of the old one are over.
3. A bundle without an RFC 3161 timestamp is refused: the client only warns when a timestamp authority fails. Only
   where the configuration names no such authority does an older log's promise say when.
4. The bundle is brought into canonical form: one spelling, and of two ECDSA twins of a service the smaller.
5. Those very bytes are verified with sigstore's verifier against the domain's trusted root and the identity
   that was asked for, and their payload is compared with the statement. Which claim a private instance names its
   certificates after is its own setting: there the identity is what the first certificate says.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509
from sigstore import dsse
from sigstore import sign as client
from sigstore.errors import VerificationError
from sigstore.models import Bundle, ClientTrustConfig, InvalidBundle
from sigstore.oidc import IdentityToken
from sigstore.verify import Verifier

from wheelmark import digests, strictjson
from wheelmark.attest.bundle import canonical_bundle
from wheelmark.attest.dsse import PAYLOAD_TYPE
from wheelmark.attest.statement import read_statement
from wheelmark.errors import SignError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.sign.domains import Domain
from wheelmark.sign.identity import Identity, ambient_token, certified, parse_token
from wheelmark.trust.roots import read_material
from wheelmark.verify.certificate import read_signer
from wheelmark.verify.oneform import in_one_form

RENEW_AFTER = dt.timedelta(minutes=5)
"""Age at which a certificate is replaced; Fulcio's live ten minutes."""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class _Named:
    """A policy for sigstore's verifier; its own cannot say the names of kind otherName that Fulcio gives to users."""

    def __init__(self, expected: Identity) -> None:
        self._expected = expected

    def verify(self, cert: x509.Certificate) -> None:
        """Refuse a certificate that names somebody else."""
        found = read_signer(cert)
        if (found.identity, found.issuer) != (self._expected.name, self._expected.issuer):
            raise VerificationError(
                f"the certificate names {found.identity} of {found.issuer}, "
                f"not {self._expected.name} of {self._expected.issuer}"
            )


class Signer:
    """Signs statements under one identity. Not for use by several threads.

    Args:
        domain: The trust domain, for messages and tables.
        config: Canonical or other JSON of a ``ClientTrustConfig``: where the services are, and the root that
            their answers must verify against.
        token: Gives a fresh identity token.
        clock: Gives the time that a certificate's age is counted by.
    """

    def __init__(
        self,
        *,
        domain: Domain,
        config: bytes,
        token: Callable[[], str],
        clock: Callable[[], dt.datetime] = _now,
    ) -> None:
        self.domain = domain
        self.certificates = 0
        """How many certificates were asked for so far."""
        try:
            value = strictjson.loads(config)
            root, services = value["trustedRoot"], value["signingConfig"]
            self._timestamps = bool(services.get("tsaUrls"))
            # cosign writes an empty member where an instance has no timestamp authority; the client wants none.
            for name in ("tsaConfig", "rekorTlogConfig"):
                if services.get(name) == {}:
                    del services[name]
            parsed = ClientTrustConfig.from_json(digests.canonical_json(value).decode())
            self._trusted_root = digests.canonical_json(root)
            self._material = read_material(root, name=domain.value)
            self._context = client.SigningContext.from_trust_config(parsed)
            self._verifier = Verifier(trusted_root=parsed.trusted_root)
        except Exception as error:  # pydantic, Unicode and sigstore's own
            raise SignError(
                f"the {domain.value} domain's ClientTrustConfig cannot be used: {error}", reason="sign-config"
            ) from error
        self._token = token
        self._clock = clock
        self._client: client.Signer | None = None
        self._waiting: IdentityToken | None = None
        self._identity: Identity | None = None
        self._since = clock()

    @property
    def identity(self) -> str:
        """The name that bundles are signed under.

        Raises:
            SignError: There is none.
        """
        return self._certified().name

    @property
    def issuer(self) -> str:
        """The OIDC issuer that vouches for ``identity``; raises as it does."""
        return self._certified().issuer

    @property
    def trusted_root(self) -> bytes:
        """Canonical JSON of the root that bundles verify against: to be published, never to be trusted as found."""
        return self._trusted_root

    def sign(self, statement: bytes) -> bytes:
        """Sign one statement.

        Args:
            statement: The statement's bytes (``Statement.as_bytes``); they are signed as they are.

        Returns:
            The bundle v0.3 in canonical form, verified.

        Raises:
            InputError: ``statement`` is no statement.
            SignError: A service refused or failed (reason ``sign``), there is no timestamp (``no-timestamp``),
                or the result does not verify (``not-verified``).
        """
        read_statement(statement)
        data = self._signed(lambda client: client.sign_dsse(dsse.Statement(statement)))
        self._verify(data, self._verifier.verify_dsse, (PAYLOAD_TYPE, statement))
        return data

    def sign_artifact(self, artifact: bytes) -> bytes:
        """Sign an artifact's digest: for other people's tools. What Wheelmark asks for are statements.

        Args:
            artifact: The artifact's bytes.

        Returns:
            The bundle v0.3 in canonical form, verified.

        Raises:
            SignError: As ``sign``.
        """
        data = self._signed(lambda client: client.sign_artifact(artifact))
        self._verify(data, lambda bundle, rule: self._verifier.verify_artifact(artifact, bundle, rule), None)
        return data

    def _signed(self, sign: Callable[[client.Signer], Bundle]) -> bytes:
        try:
            bundle = sign(self._fresh_client())
        except WheelmarkError:
            raise
        except InvalidBundle as error:
            # A bundle with neither a timestamp nor a log's promise is no bundle for the client; older logs promise.
            if "timestamp" in str(error):
                raise self._no_timestamp() from error
            raise self._failure("signing failed", error) from error
        except Exception as error:  # sigstore raises errors of its own, of requests, pydantic and more
            raise self._failure("signing failed", error) from error
        if self._timestamps and bundle.verification_material.timestamp_verification_data is None:
            raise self._no_timestamp()
        return self._in_one_form(bundle)

    def _in_one_form(self, bundle: Bundle) -> bytes:
        try:
            return in_one_form(canonical_bundle(bundle.to_json().encode()), self._material)
        except (WheelmarkError, ValueError) as error:
            raise SignError(
                f"what was just signed in the {self.domain.value} domain is no bundle that verifies: {error}",
                cause="a service answered in a form that the verifier does not take",
                reason="not-verified",
            ) from error

    def _fresh_client(self) -> client.Signer:
        if self._client is None or self._clock() - self._since >= RENEW_AFTER:
            token = self._next_token()
            self._since = self._clock()
            try:
                self._client = client.Signer(token, self._context)
            except Exception as error:  # as in sign
                raise self._failure("no signing certificate was given", error) from error
            self.certificates += 1
            if self.domain is Domain.FILE:
                self._identity = self._named(self._client)
        return self._client

    def _named(self, given: client.Signer) -> Identity:
        """Whom the certificate that was just given names."""
        try:
            # No public call gives it before something is signed.
            named = read_signer(given._signing_cert())  # noqa: SLF001
        except Exception as error:  # as in sign
            raise self._failure("the signing certificate names nobody", error) from error
        return Identity(name=named.identity, issuer=named.issuer)

    def _next_token(self) -> IdentityToken:
        waiting, self._waiting = self._waiting, None
        token = waiting if waiting and waiting.in_validity_period() else parse_token(self._token())
        if self.domain is not Domain.FILE:
            self._identity = certified(token)
        return token

    def _certified(self) -> Identity:
        if self._identity is None and self.domain is Domain.FILE:
            self._fresh_client()
        if self._identity is None:
            # Who would sign is asked for more often than anything is signed: no certificate is spent on it.
            self._waiting = self._next_token()
            return certified(self._waiting)
        return self._identity

    def _verify(self, data: bytes, verify: Callable[[Bundle, _Named], object], expected: object) -> None:
        """Compare what sigstore's verifier gives for the bundle with what was to be signed."""
        who = self._certified()
        try:
            found = verify(Bundle.from_json(data), _Named(who))
        except Exception as error:
            raise SignError(
                f"what was just signed in the {self.domain.value} domain does not verify: {error}",
                cause="the services' keys are not those of the trusted root, or they certified somebody else",
                fix="nothing was written; compare the trusted root with the instance's own",
                reason="not-verified",
            ) from error
        if found != expected:
            raise SignError("what was signed is not the statement that was given", reason="not-verified")

    def _no_timestamp(self) -> SignError:
        if not self._timestamps:
            return SignError(
                f"the {self.domain.value} domain gives no signed time",
                cause="the signing configuration names no timestamp authority, and its log promises no time (Rekor v2)",
                fix="add a timestamp authority: tsaUrls and tsaConfig of the signing configuration",
                reason="no-timestamp",
            )
        return SignError(
            f"the {self.domain.value} domain's timestamp authority gave no timestamp",
            cause="the authority is unreachable, or its answer is not DER (timestamp-authority with "
            "--include-chain-in-response)",
            fix="sign again; where it stays so, look at tsaUrls of the signing configuration",
            reason="no-timestamp",
        )

    def _failure(self, what: str, error: Exception) -> SignError:
        why = str(error.__cause__ or error) or type(error).__name__
        # The service's own words, which sigstore's errors leave out.
        answer = getattr(error.__cause__, "response", None)
        said = f": {answer.text.strip()[:500]}" if answer is not None else ""
        return SignError(
            f"{what} in the {self.domain.value} domain: {type(error).__name__}: {why}{said}",
            cause="a service of the domain refused the request or cannot be reached",
            reason="sign",
        )


@contextlib.contextmanager
def open_signer(
    domain: Domain = Domain.EMBEDDED,
    *,
    config: Path | None = None,
    state: Path | None = None,
    name: str = embedded.RELEASE_IDENTITY,
) -> Iterator[Signer]:
    """A signer in one trust domain, good until the context ends.

    Args:
        domain: Which domain. There is no falling back from one to another.
        config: For ``file``: the ``ClientTrustConfig`` to sign with.
        state: For ``embedded``: the state directory; ``None`` for this machine's own.
        name: For ``embedded``: the identity to sign under. Elsewhere the identity is the token's.

    Raises:
        SignError: No identity (reason ``no-identity``), or the configuration cannot be used.
    """
    if domain is Domain.EMBEDDED:
        with embedded.open_instance(state) as instance, instance.serving() as made:
            yield Signer(domain=domain, config=made, token=lambda: instance.mint(name))
        return
    given = _read(config) if domain is Domain.FILE else None
    # Asked before the download: whoever has no identity need not wait for it.
    token = ambient_token()
    loaded = _public() if given is None else given
    yield Signer(domain=domain, config=loaded, token=_once_then_ambient(token))


def _once_then_ambient(token: str) -> Callable[[], str]:
    waiting = [token]
    return lambda: waiting.pop() if waiting else ambient_token()


def _public() -> bytes:
    try:
        # The client fetches and checks this with TUF; it hands it out only as its own object.
        return ClientTrustConfig.production()._inner.to_json().encode()  # noqa: SLF001
    except Exception as error:  # TUF, network and parsing errors of several libraries
        raise SignError(
            f"the public Sigstore instance's trust configuration cannot be fetched: {error}",
            cause="no network, or the clock of this machine is wrong",
            reason="sign-config",
        ) from error


def _read(path: Path | None) -> bytes:
    if path is None:
        raise SignError(
            "the file domain needs a ClientTrustConfig",
            fix="name the instance's configuration file",
            reason="sign-config",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise SignError(f"cannot read {path}: {error.strerror}", reason="sign-config") from error
