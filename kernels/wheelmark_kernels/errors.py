"""What goes wrong between an operator and the card, as one exception with a stable reason code.

A launcher that cannot run a precompiled kernel raises, it never ends the process, and it never runs another
kernel than the one that was asked for. The message says what the device is, what this wheel holds, and how
to reach the fallback.
"""

from __future__ import annotations

FALLBACK_VARIABLE = "WHEELMARK_KERNELS_FALLBACK"
"""Environment variable: ``1`` lets an operator fall back to plain PyTorch where no kernel can be launched."""

INTEGRITY_REASONS = frozenset({"manifest", "object-missing", "digest"})
"""Reasons that say the wheel's files are not what was released. No fallback hides them."""


class KernelUnavailable(RuntimeError):  # noqa: N818 - what callers catch is a state, named for what it is
    """No precompiled kernel can be launched for this call on this device.

    Args:
        what: What failed, in one sentence.
        reason: Stable reason code: ``driver-missing``, ``driver-symbol``, ``driver-init``, ``driver-junk``,
            ``device``, ``arch``, ``manifest``, ``object-missing``, ``digest``, ``object-refused``,
            ``entry-missing``, ``parameters``, ``shared-memory``, ``arguments``, ``no-variant``, ``launch``.
        device_arch: The device's architecture (``sm90``, ``gfx942``), or empty where it is not known.
        available: Architectures that this wheel holds code for.
    """

    def __init__(
        self, what: str, *, reason: str, device_arch: str = "", available: tuple[str, ...] = ()
    ) -> None:
        self.what = what
        self.reason = reason
        self.device_arch = device_arch
        self.available = available
        super().__init__(what)

    @property
    def may_fall_back(self) -> bool:
        """Whether plain PyTorch may answer instead: never where the wheel's own files are wrong."""
        return self.reason not in INTEGRITY_REASONS

    def __str__(self) -> str:
        lines = [f"[{self.reason}] {self.what}"]
        if self.device_arch or self.available:
            lines.append(
                f"  device: {self.device_arch or 'unknown'}; "
                f"this wheel holds code for: {', '.join(self.available) or 'no card'}"
            )
        if self.may_fall_back:
            lines.append(
                f"  fallback: set {FALLBACK_VARIABLE}=1 to run plain PyTorch on this device, or move the tensors to the CPU"
            )
        else:
            lines.append("  the installed files are not those of the release: install the wheel again")
        return "\n".join(lines)
