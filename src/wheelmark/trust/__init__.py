"""Whom this machine trusts: roots named by digest, what they may vouch for, and where its own root lies.

Nothing here needs the means to sign; a root that lies beside an artifact is never believed.
"""
