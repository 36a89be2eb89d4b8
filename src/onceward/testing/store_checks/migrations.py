"""The schema: migrated whole or not at all, refused where it is not ours (I30)."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.ports import RunFilter
from onceward.testing.store_scene import (
    Planted,
    Process,
    StoreFactory,
    failing_at,
    raised,
    rows,
    together,
)

STATEMENTS_MAX = 200
"""More statements than the migrations have; the loops below end long before."""

OPENERS = 4


def an_empty_database_is_refused_until_it_is_migrated(stores: StoreFactory) -> None:
    """Without being asked to migrate, a store says what is missing and makes nothing."""
    for _ in range(2):
        error = raised(errors.SchemaOutdated, lambda: stores.make().open(migrate=False))
        assert "0001_initial" in str(error)

    stores.make().open(migrate=True)
    stores.make().open(migrate=False)


def migrating_twice_changes_nothing(stores: StoreFactory) -> None:
    """What is stored stays; a store may be opened when it is open."""
    process = Process(stores)
    process.queue("evt_1")
    before = rows(process.store)

    process.store.open(migrate=True)
    stores.make().open(migrate=True)

    assert before == rows(process.store)


def stores_that_open_at_once_migrate_once(stores: StoreFactory) -> None:
    """Several processes start together on an empty database, and all of them can work."""
    fresh = [stores.make() for _ in range(OPENERS)]

    together(*(lambda store=store: store.open(migrate=True) for store in fresh))

    assert all(store.runs(RunFilter()) == [] for store in fresh)


def a_migration_that_dies_at_any_statement_leaves_the_old_schema(stores: StoreFactory) -> None:
    """Cut off behind each statement in turn: nothing is there, and the next try goes through."""
    number = 0
    for number in range(1, STATEMENTS_MAX):
        with failing_at("migrate.statement", hit=number):
            try:
                stores.make().open(migrate=True)
            except Planted:
                raised(errors.SchemaOutdated, lambda: stores.make().open(migrate=False))
            else:
                break

    assert number > 10, "the failpoint was not reached"
    Process(stores).queue("evt_1")


def a_migration_that_dies_before_its_commit_leaves_the_old_schema(stores: StoreFactory) -> None:
    """The last moment at which it may."""
    with failing_at("migrate.before_commit"):
        raised(Planted, lambda: stores.make().open(migrate=True))

    raised(errors.SchemaOutdated, lambda: stores.make().open(migrate=False))
    stores.make().open(migrate=True)


def a_schema_that_came_through_interruptions_is_a_fresh_one(stores: StoreFactory) -> None:
    """However often a migration was cut off before, nothing of it is left over."""
    for number in (1, 3, 8):
        with failing_at("migrate.statement", hit=number):
            raised(Planted, lambda: stores.make().open(migrate=True))
    stores.open()
    fresh = stores.another()
    fresh.open()

    assert stores.schema() == fresh.schema()
    assert "event" in fresh.schema()


def a_schema_made_by_the_printed_script_is_a_fresh_one(stores: StoreFactory) -> None:
    """A store accepts it as migrated, and can work with it."""
    stores.run_script()
    stores.make().open(migrate=False)
    Process(stores).queue("evt_1")
    fresh = stores.another()
    fresh.open()

    assert stores.schema() == fresh.schema()


def a_newer_schema_is_refused_by_name(stores: StoreFactory) -> None:
    """An old binary touches nothing, asked to migrate or not, and cannot be used afterwards."""
    process = Process(stores)
    process.queue("evt_1")
    before = rows(process.store)
    stores.execute(
        "insert into {t}migration (version, name, checksum, applied_at) values (999, '0999_later', 'abc', 1)"
    )

    for migrate in (False, True):
        old = stores.make()
        error = raised(errors.SchemaNewer, lambda old=old, migrate=migrate: old.open(migrate=migrate))  # type: ignore[misc]
        assert "0999_later" in str(error)
        raised(errors.StoreError, lambda old=old: old.runs(RunFilter()))  # type: ignore[misc]

    assert before == rows(process.store)


def a_migration_that_ran_with_another_text_is_refused(stores: StoreFactory) -> None:
    """A schema of unknown shape is not used."""
    stores.open()
    stores.execute("update {t}migration set checksum = 'edited' where version = 1")

    error = raised(errors.StoreDamaged, lambda: stores.make().open(migrate=True))

    assert "0001_initial" in str(error)
    assert "edited" in str(error)
