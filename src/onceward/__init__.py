"""Onceward: exactly one run of each event, carried to its end."""
