"""The ``onceward`` command."""
