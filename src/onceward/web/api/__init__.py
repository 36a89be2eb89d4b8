"""The REST API below ``/api/v1``: one table of calls, from which the description of it is made too."""
