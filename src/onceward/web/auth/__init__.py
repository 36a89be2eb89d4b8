"""Who may use the dashboard and the REST API: users, tokens, sessions, and the checks of a request."""
