"""Perdure: a runtime for agents whose sessions cannot be lost."""

__version__ = "0.1.0"
