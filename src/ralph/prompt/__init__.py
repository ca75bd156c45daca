"""Prompts, built from templates and given facts, within a budget of tokens.

This package is pure: it reads no files of a project and queries no memory.
"""
