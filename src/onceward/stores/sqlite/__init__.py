"""The store in one SQLite file, or in memory: several processes on one host."""
