"""Values and decisions: pure code without I/O, clock or randomness."""
