"""Commands: ``gentle fit``, ``sample``, ``predict``, ``evaluate``, and data to try it on."""

from gentle.cli.app import app, main

__all__ = ["app", "main"]
