"""Measurements behind the claims of the documents; run from a clone, and in no wheel.

``cost/`` measures time and memory beside plain loops and other packages. Every other file is behind a single claim, and
the document that makes it names the file.
"""
