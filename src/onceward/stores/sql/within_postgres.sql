-- What Onceward says on a connection of the user's, in the user's transaction. One parameter is one
-- text, whatever the driver: numbers come in JSON, or are read from their text.

-- name: open
-- First. A process that stops in the middle holds its locks for no longer than its lease. The mark ends
-- with the transaction, so that one which the body ended is noticed. What tells one database from
-- another: its number, that of our table in it, and the server with the time at which it began.
select set_config('idle_in_transaction_session_timeout', cast(:idle as text), true),
  set_config('onceward.transaction', cast(:mark as text), true),
  set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
    else current_setting('synchronous_commit') end, true),
  to_regclass(cast(:place as text)) is not null, concat_ws(' ', (select d.oid from pg_catalog.pg_database d where d.datname = current_database()),
    cast(to_regclass(cast(:place as text)) as oid), inet_server_addr(), inet_server_port(), pg_postmaster_start_time())

-- name: where
select to_regclass(cast(:place as text)) is not null, concat_ws(' ', (select d.oid from pg_catalog.pg_database d where d.datname = current_database()),
    cast(to_regclass(cast(:place as text)) as oid), inet_server_addr(), inet_server_port(), pg_postmaster_start_time())

-- name: is_ours
select 1 from {t}process
where namespace = cast(:namespace as text) and process_id = cast(:process_id as text)

-- name: seal
-- Last, just before COMMIT (RULINGS 2). The lock keeps the fence as it is until then: whoever wants to
-- change it waits, and whoever has changed it makes this find nothing. A record that has an outcome stays.
with given as materialized (
  select s.* from json_to_recordset(cast(:step as json)) as s (fence bigint, generation bigint, name text,
    item text, ordinal bigint, seq bigint, kind text, state text, attempt bigint, tries bigint,
    started_at bigint, ended_at bigint, output text)
), mine as materialized (
  select r.namespace, r.run_id from {t}run r
  where r.namespace = cast(:namespace as text) and r.run_id = cast(:run_id as text)
    and r.fence = (select fence from given)
  for no key update
), saved as (
  insert into {t}step as old (namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt,
    tries, started_at, ended_at, output)
  select m.namespace, m.run_id, g.generation, g.name, g.item, g.ordinal, g.seq, g.kind, g.state, g.attempt,
    g.tries, g.started_at, g.ended_at, g.output
  from mine m cross join given g
  on conflict (namespace, run_id, generation, name, item, ordinal) do update set
    seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, tries = excluded.tries,
    ended_at = excluded.ended_at, output = excluded.output, error = null, wake_at = null, begun = null
  where old.state = 'open'
  returning 1
), cleared as (
  -- A new checkpoint: the run is not what kills its holders (RULINGS 6).
  update {t}run r set crashes = 0 from mine m, saved
  where r.namespace = m.namespace and r.run_id = m.run_id and r.crashes > 0
)
select (select count(*) from saved), coalesce(current_setting('onceward.transaction', true), '')

-- name: is_posted
select 1 from {t}outbox where namespace = cast(:namespace as text) and outbox_id = cast(:outbox_id as text)

-- name: post
insert into {t}outbox (namespace, outbox_id, at, body)
values (cast(:namespace as text), cast(:outbox_id as text), cast(cast(:at as text) as bigint), cast(:body as text))

-- name: hint
-- Heard by the others when the transaction commits, and only then.
select pg_notify(cast(:channel as text), cast(:namespace as text))
