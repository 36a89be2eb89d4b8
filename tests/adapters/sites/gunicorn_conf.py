"""What a gunicorn.conf.py says so that each worker opens the app at once, as the docs show it."""

from __future__ import annotations


def post_worker_init(worker: object) -> None:
    from tests.adapters.sites.django_site import hooks

    hooks.open()
