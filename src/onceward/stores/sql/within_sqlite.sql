-- What Onceward says on a connection of the user's, in the user's transaction.

-- name: file
select file from pragma_database_list where name = 'main'

-- name: version
select sqlite_version()

-- name: mark
-- A transaction that the body ended has this no more.
savepoint onceward

-- name: unmark
release onceward

-- name: is_ours
select 1 from {t}process where namespace = :namespace and process_id = :process_id

-- name: others
select process_id from {t}process where process_id <> :process_id

-- name: seal
-- Last, just before COMMIT. One row, or the run has another fence, or the record has an outcome.
insert into {t}step (namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt, tries,
  started_at, ended_at, output)
select r.namespace, r.run_id, :generation, :name, :item, :ordinal, :seq, :kind, :state, :attempt, :tries,
  :started_at, :ended_at, :output
from {t}run r where r.namespace = :namespace and r.run_id = :run_id and r.fence = :fence
on conflict (namespace, run_id, generation, name, item, ordinal) do update set
  seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, tries = excluded.tries,
  ended_at = excluded.ended_at, output = excluded.output, error = null, wake_at = null, begun = null
where {t}step.state = 'open'
returning 1

-- name: cleared
-- A new checkpoint: the run is not what kills its holders (RULINGS 6).
update {t}run set crashes = 0 where namespace = :namespace and run_id = :run_id and crashes > 0

-- name: no_copying
-- One process's one connection copies the log into the file (RULINGS 9), and a log of ours is longer than
-- where SQLite begins to copy at a commit by itself.
pragma wal_autocheckpoint = 0

-- name: is_posted
select 1 from {t}outbox where namespace = :namespace and outbox_id = :outbox_id

-- name: post
insert into {t}outbox (namespace, outbox_id, at, body) values (:namespace, :outbox_id, :at, :body)
