"""The commands that look at a store and steer its runs, as the REST API and the dashboard do."""
