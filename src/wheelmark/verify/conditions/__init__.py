"""The conditions of a requirement, a module for each part of the policy. Pure: values in, a trail out."""
