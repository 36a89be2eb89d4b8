"""Tools for testing workflows, stores and sources; public, imported by nobody below."""
