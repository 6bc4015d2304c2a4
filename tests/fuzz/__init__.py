"""A structure-aware, seeded mutation fuzzer of the verifier: ``nox -s fuzz -- --seconds 60 --seed 1 --workers 2``.

A *subject* is a kind of input with originals that are accepted, mutators that change them, and a judge that holds what has
to hold of every mutant:

a. Of bundles that Wheelmark wrote, under its own root, nothing but the original bytes is accepted.
b. Of other bundles, no change to signed content or to a reported fact is accepted; what may differ is named as
   unauthenticated.
c. Nothing but an error or a verdict of Wheelmark comes out; in bounded time and memory.
d. What is accepted, sigstore-python accepts too.

Mutant number ``n`` of a seed is always made by the same mutators in the same way (of originals whose keys are new in each
run); one that breaks an invariant is saved with everything that is needed to judge it again.
"""
