"""The dashboard: what a console shows, as pages that a person reads at three in the morning."""
