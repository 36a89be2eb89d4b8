"""Where events and runs are kept: SQL, and nothing that decides."""
