"""Providers of events: pure functions that verify and normalise their requests."""
