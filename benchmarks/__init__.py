"""Measures Onceward beside a peer; see ``README.md`` for how to run it and what is counted."""
