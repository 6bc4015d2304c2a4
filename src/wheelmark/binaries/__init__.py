"""What bytes say: ELF objects, GPU code objects, wheels, and the kernel manifest that binds them.

Everything here is pure: bytes in, values out. Input that is malformed or over a bound is refused with
``InputError`` and a stable reason code; no other exception leaves this room. The readers are our own and
need nothing but the standard library and ``packaging`` (docs/decisions/0003-own-readers.md).
"""
