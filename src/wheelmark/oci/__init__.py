"""Open Container Initiative images: documents, layouts on disk and layers, read strictly; layouts written too.

Only OCI 1.1 is read. Documents of Docker's own media types are refused: whoever converts one changes its digest, and
what is signed is the digest.
"""
