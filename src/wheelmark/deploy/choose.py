"""Which wheel of a release fits a machine, and why not the others. Pure.

A wheel for a card fits the card of exactly its arch: the launcher hands an object to no other. For each wheel that
does not fit the first reason is said, with the numbers. Where several cards each have a wheel of their own, or what
was named does not fit, nothing is chosen.

========================  =======================================================================
reason                    what it says
========================  =======================================================================
``cpu``                   for another CPU
``glibc``                 the C library is older than the platform tag promises, or is another
``python``                the interpreter is outside ``Requires-Python``
``card``                  no card of that arch answers
``driver``                the driver is older than the code needs, or does not say its version
``torch``                 the torch that is installed is outside the range, or built for something else
========================  =======================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark.binaries.platforms import floor_of
from wheelmark.deploy.machine import Card, Machine
from wheelmark.errors import InputError, MachineError
from wheelmark.targets import Backend, Target

AUTO = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """One wheel of a release, as far as a machine has to fit it."""

    target: Target
    path: str
    """Relative to the release directory; a lone wheel's own name."""
    sha256: str
    """Of the bytes that all of this was read from."""
    platforms: tuple[str, ...]
    """``manylinux_2_28_x86_64``; any one of them is enough."""
    requires: tuple[str, ...] = ()
    """``Requires-Dist``."""
    requires_python: str = ""
    min_driver: str = ""
    """First driver that is known to load all of its code; empty where none is known."""
    toolkit: str = ""
    """Newest CUDA version that its code was assembled with; empty for ROCm and the CPU."""

    @property
    def torch(self) -> SpecifierSet:
        """Versions of torch that it takes; any, where it names none.

        A wheel for ROCm names its range behind an extra, so that no index's own torch is put in the place of
        the one for ROCm: the range holds all the same.

        Raises:
            InputError: A requirement is malformed (``wheel-metadata``).
        """
        found = [item.specifier for item in self.requirements if canonicalize_name(item.name) == "torch"]
        return found[0] if found else SpecifierSet()

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """``Requires-Dist``, parsed.

        Raises:
            InputError: One is malformed (``wheel-metadata``).
        """
        try:
            return tuple(Requirement(text) for text in self.requires)
        except InvalidRequirement as error:
            raise InputError(
                f"{self.path}: a malformed requirement: {error}", reason="wheel-metadata"
            ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unfit:
    """Why one wheel is not chosen."""

    target: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.target}: {self.text}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The wheel to install."""

    target: str
    wheel: Offer
    why: tuple[str, ...]
    """In words: what fits, then what does not and why."""
    rejected: tuple[Unfit, ...] = ()
    card_unchecked: bool = False
    """The card and its driver are on another machine; nobody looked."""


def choose(
    wheels: Sequence[Offer], machine: Machine, *, target: str = AUTO, without_card: bool = False
) -> Choice:
    """Choose the wheel for a machine.

    Args:
        wheels: What the release holds.
        machine: What there is.
        target: A target id, or ``auto``: the card's own wheel, else the CPU's.
        without_card: With a target id: card and driver are on another machine and are not looked at.

    Raises:
        MachineError: The release does not hold the target (``target-absent``); it does not fit (``target-unfit``);
            none fits (``nothing-fits``); several cards have wheels of their own (``target-ambiguous``).
        InputError: A wheel's metadata are malformed.
    """
    if target != AUTO:
        return _named(wheels, machine, target, without_card=without_card)
    fitting: list[Offer] = []
    rejected: list[Unfit] = []
    for offer in wheels:
        problem = next(unfit(offer, machine), None)
        if problem is None:
            fitting.append(offer)
        else:
            rejected.append(problem)
    own = [offer for offer in fitting if offer.target.is_gpu]
    if len({str(offer.target) for offer in own}) > 1:
        named = ", ".join(str(offer.target) for offer in own)
        raise MachineError(
            f"several cards of this machine have a wheel of their own: {named}",
            fix="name one of them with --target",
            reason="target-ambiguous",
        )
    chosen = (own or fitting)[:1]
    if not chosen:
        raise MachineError(
            "no wheel of the release fits this machine:\n" + "\n".join(f"  {item}" for item in rejected),
            fix="wheelmark install --dry-run says what was found; build or fetch a release for this machine",
            reason="nothing-fits",
        )
    return _choice(chosen[0], machine, tuple(rejected))


def _named(wheels: Sequence[Offer], machine: Machine, target: str, *, without_card: bool) -> Choice:
    wanted = Target.parse(target)
    offer = next((item for item in wheels if item.target == wanted), None)
    if offer is None:
        held = ", ".join(sorted(str(item.target) for item in wheels))
        raise MachineError(
            f"the release holds no wheel for {target}; it holds: {held or 'none'}", reason="target-absent"
        )
    problems = tuple(unfit(offer, machine, without_card=without_card))
    if problems:
        elsewhere = any(item.reason in {"card", "driver"} for item in problems)
        raise MachineError(
            f"{target} does not fit this machine: {'; '.join(item.text for item in problems)}",
            fix="--without-card, if this environment is made for another machine" if elsewhere else "",
            reason="target-unfit",
        )
    return _choice(offer, machine, (), card_unchecked=without_card and wanted.is_gpu)


def _choice(
    offer: Offer, machine: Machine, rejected: tuple[Unfit, ...], *, card_unchecked: bool = False
) -> Choice:
    if card_unchecked:
        reason = "named; the card and its driver are on another machine and were not looked at"
    elif offer.target.is_gpu:
        reason = f"card {next(card for card in machine.cards if _is_for(offer, card))}"
    else:
        reason = f"CPU {machine.arch}" + (f" with {', '.join(machine.features)}" if machine.features else "")
    torch = f"torch {machine.torch}" if machine.torch else "no torch yet"
    fits = f"{offer.target}: {reason}; glibc {machine.glibc}, Python {machine.python}, {torch}"
    return Choice(
        target=str(offer.target),
        wheel=offer,
        why=(fits, *(f"not {item}" for item in rejected)),
        rejected=rejected,
        card_unchecked=card_unchecked,
    )


def unfit(offer: Offer, machine: Machine, *, without_card: bool = False) -> Iterator[Unfit]:
    """Every reason why a wheel does not fit, the weightiest first."""

    def no(reason: str, text: str) -> Unfit:
        return Unfit(target=str(offer.target), reason=reason, text=text)

    here = [item for item in offer.platforms if item == "any" or item.endswith(f"_{machine.arch}")]
    if not here:
        yield no("cpu", f"it is for {', '.join(offer.platforms)}; this CPU is {machine.arch}")
        return
    if offer.target.is_gpu and not without_card:
        cards = [card for card in machine.cards if _is_for(offer, card)]
        if not cards:
            yield no("card", _no_card(offer, machine))
        elif (text := _old_driver(offer, cards[0])) is not None:
            yield no("driver", text)
    if (text := _old_glibc(here, machine)) is not None:
        yield no("glibc", text)
    if not _contains(offer.requires_python, machine.python, "Requires-Python"):
        yield no("python", f"it needs Python {offer.requires_python}; this is {machine.python}")
    if (text := _wrong_torch(offer, machine.torch)) is not None:
        yield no("torch", text)


def _is_for(offer: Offer, card: Card) -> bool:
    return card.backend is offer.target.backend and card.arch == offer.target.arch


def _no_card(offer: Offer, machine: Machine) -> str:
    same = [card.arch for card in machine.cards if card.backend is offer.target.backend]
    have = (
        f"the cards here are {', '.join(same)}" if same else f"no {offer.target.backend.value} card answers"
    )
    return f"it is for {offer.target.arch} and runs on no other; {have}"


def _old_driver(offer: Offer, card: Card) -> str | None:
    """Why the card's driver cannot load the code; ``None`` where it can."""
    if not offer.min_driver:
        return None
    if card.driver:
        older = _version(card.driver) < _version(offer.min_driver)
        return (
            f"driver {card.driver} is older than {offer.min_driver}, which its code needs" if older else None
        )
    if card.cuda and offer.toolkit:
        # The floor is the first driver of this CUDA version: one that knows the version is no older.
        older = _version(card.cuda) < _version(offer.toolkit)
        text = f"the driver knows CUDA {card.cuda}, and its code was assembled by {offer.toolkit}"
        return f"{text} (driver {offer.min_driver})" if older else None
    return f"the driver does not say its version; its code needs {offer.min_driver}"


def _old_glibc(platforms: Sequence[str], machine: Machine) -> str | None:
    if "any" in platforms:
        return None
    try:
        floors = [floor_of(item).newest["GLIBC"] for item in platforms]
    except InputError as error:
        return error.what
    wanted = ".".join(map(str, min(floors)))
    if not machine.glibc:
        return f"it needs glibc {wanted}; the C library here is another"
    if _version(machine.glibc) < _version(wanted):
        return f"it needs glibc {wanted}; this machine has {machine.glibc}"
    return None


def _wrong_torch(offer: Offer, torch: str) -> str | None:
    if not torch:
        return None
    if not offer.torch.contains(torch, prereleases=True):
        return f"it needs torch{offer.torch}; {torch} is installed"
    label = torch.partition("+")[2]
    built = "rocm" if label.startswith("rocm") else "cpu" if label == "cpu" else "cuda"
    backend = offer.target.backend
    if backend is not Backend.CPU and built != backend.value:
        return f"torch {torch} is installed, which is not built for {backend.value}"
    return None


def _contains(specifier: str, version: str, what: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier as error:
        raise InputError(f"{what} {specifier!r:.80} is malformed", reason="wheel-metadata") from error


def _version(text: str) -> Version:
    """A version that compares; what is none is older than all."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
