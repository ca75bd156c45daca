"""Embedders. Each is a module with the name used in the setting `embedder`.

A module has `open_embedder(settings, cache)`. It loads nothing and sends no requests before the
first text.
"""
