"""The store in PostgreSQL: any number of processes on one database."""
