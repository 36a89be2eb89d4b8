"""Transactions of the user's: the glue to each driver, and what commits a checkpoint in one."""
