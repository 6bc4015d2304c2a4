"""in-toto statements and predicates, built and read strictly; DSSE envelopes; the bundle's canonical form.

Bytes in, values out. Nothing here checks a signature: that is ``wheelmark.verify``. What is refused is an
``InputError`` with a stable reason code.
"""
