"""Embedders: each is a module here, named like the setting `embedder` names it.

A module has `open_embedder(settings, cache)`. Nothing is loaded or asked before its first text.
"""
