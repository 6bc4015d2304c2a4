"""Deployment, the operator's side: what this machine is, which wheel of a release fits it, and installing that.

What is installed are the bytes that were verified, and what then lies on disk is compared with them. Nothing here
reaches what builds.
"""
