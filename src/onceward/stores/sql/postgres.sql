-- Statements of the PostgreSQL store. Placeholders are :name; a set of rows is one JSON parameter
-- that the server takes apart: 0.3 us of the client a row, where arrays for unnest cost 2.5 us.
--
-- Locks are taken in one order everywhere: committer, process, then the tables in the order of the
-- batch's statements, rows by key. Claims lock queue before run: they take only what nobody owns.
--
-- Plans must not hang on statistics: a plan that is made while a table is empty is kept, and then a
-- scan of the whole namespace looks as cheap as a look-up (measured: 13 times slower at 300 runs,
-- and growing). So a table is joined to a set of rows, which is materialized and carries the
-- namespace, by "namespace = any(array[...])": that is an index condition like "=", but one from
-- which the planner cannot conclude that it might begin with the table.

-- The statements of a batch, in the order of its pipeline. ---------------------------------------

-- name: guard
-- One row, or the division stops the whole transaction: the statements after it are already on
-- their way. The batch names its predecessor, so that a copy of an older batch that was held up
-- in the network cannot come after a newer one, nor a batch after itself. Of registrations it sees
-- those that were committed before it began: no event that comes later than one is accepted without.
with mine as (
  update {t}committer set last_batch = :batch_id
  where namespace = :namespace and process_id = :process_id and epoch = :epoch
    and last_batch is not distinct from :previous and last_batch is distinct from :batch_id
    and (cast(:registrations as bigint) is null or :registrations
         = coalesce((select registrations from {t}registry where namespace = :namespace), 0))
  returning 1
)
select 1 / count(*) from mine

-- name: fences
-- Which of the runs have another fence. The guard's lock keeps the answer true until the commit,
-- since takeovers and operators want that row before they change a fence.
with a as materialized (
  select :namespace as namespace, a.* from json_to_recordset(:holders) as a (run_id text, fence bigint)
)
select a.run_id, a.fence from a
left join {t}run r on r.namespace = any(array[a.namespace]) and r.run_id = a.run_id and r.fence = a.fence
where r.run_id is null

-- name: save_steps
-- A saved result never changes (I4); an open record may, and a failure may be opened again. Gives
-- the runs that have another fence; nothing of theirs is written.
with given as materialized (
  select :namespace as namespace, s.* from json_to_recordset(:steps) as s (run_id text, fence bigint,
    generation bigint, name text, item text, ordinal bigint, seq bigint, kind text, state text, attempt bigint,
    tries bigint, started_at bigint, ended_at bigint, output text, error text, wake_at bigint,
    child_run_id text, origin text, inputs_hash text, effect text, key_scope text, key_memory_ms bigint,
    begun text)
), checked as materialized (
  select g.*, r.run_id is not null as is_held from given g
  left join {t}run r on r.namespace = any(array[g.namespace]) and r.run_id = g.run_id and r.fence = g.fence
), saved as (
  insert into {t}step as old (namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt,
    tries, started_at, ended_at, output, error, wake_at, child_run_id, origin, inputs_hash, effect, key_scope,
    key_memory_ms, begun)
  select namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt, tries, started_at,
    ended_at, output, error, wake_at, child_run_id, origin, inputs_hash, effect, key_scope, key_memory_ms, begun
  from checked where is_held
  on conflict (namespace, run_id, generation, name, item, ordinal) do update set
    seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, tries = excluded.tries,
    ended_at = excluded.ended_at, output = excluded.output, error = excluded.error,
    wake_at = excluded.wake_at, child_run_id = excluded.child_run_id, effect = excluded.effect,
    key_scope = excluded.key_scope, key_memory_ms = excluded.key_memory_ms, begun = excluded.begun
  where old.state = 'open' or (old.state in ('failed', 'cut') and excluded.state = 'open')
)
select distinct run_id, fence from checked where not is_held

-- name: accept
-- The unique key decides who won. Gives the events that did not: their key is taken, or the run
-- that emits them has another fence. What is compared "is true" is looked up in a hash; as a join
-- the planner would compare each row of one small set with each of the other.
with e as materialized (
  select e.*, e.by_run is null or e.by_fence = (
    select r.fence from {t}run r where r.namespace = :namespace and r.run_id = e.by_run
  ) as is_held
  from json_to_recordset(:events) as e (source text, id text, type text, payload text, received_at bigint,
    subject text, occurred_at bigint, content_hash text, is_loose boolean, trace text,
    by_run text, by_fence bigint)
), won as (
  insert into {t}event (namespace, source, id, type, payload, received_at, subject, occurred_at, content_hash,
    id_is_signed, trace)
  select :namespace, source, id, type, payload, received_at, subject, occurred_at, content_hash,
    case when is_loose then 0 else 1 end, trace
  from e where is_held
  on conflict do nothing
  returning source, id
), started as (
  insert into {t}run (namespace, run_id, workflow, source, event_id, replay_id, state, generation, attempt,
    failures, crashes, fence, created_at, started_at, deadline_at, replay_of, parent_run_id,
    parent_generation, is_called, depth, input, is_stale)
  select :namespace, n.run_id, n.workflow, n.source, n.event_id, n.replay_id,
    case when n.is_claimed then 'running' else 'queued' end, 1, 1, 0, 0, n.is_claimed::int, n.created_at,
    case when n.is_claimed then n.created_at end, n.deadline_at, n.replay_of, n.parent_run_id,
    n.parent_generation, n.is_called::int, n.depth, n.input, 0
  from json_to_recordset(:runs) as n (source text, event_id text, run_id text, workflow text,
    created_at bigint, deadline_at bigint, replay_id text, replay_of text, parent_run_id text,
    parent_generation bigint, is_called boolean, depth bigint, input text, is_claimed boolean)
  where ((n.source, n.event_id) in (select source, id from won)) is true
  on conflict do nothing
  returning run_id, workflow, created_at, fence
), queued as (
  insert into {t}queue (namespace, run_id, workflow, due_at, process_id, woken, is_suspect)
  select :namespace, run_id, workflow, created_at, case when fence = 1 then :process_id end, 0, 0
  from started
)
select source, id from e where ((source, id) in (select source, id from won)) is not true

-- name: raise_versions
-- For events that this very transaction wrote, whose rows carry its number. The conflict locks the
-- subject's row also where it stays as it is, so that what is judged next stays true.
with g as materialized (
  select :namespace as namespace, g.* from json_to_recordset(:raised) as g (source text, event_id text,
    workflow text, subject text, version text)
)
insert into {t}version as old (namespace, workflow, subject, version, source, event_id)
select g.namespace, g.workflow, g.subject, g.version, g.source, g.event_id
from g
join {t}event e on e.namespace = any(array[g.namespace]) and e.source = g.source and e.id = g.event_id
where e.xmin = pg_current_xact_id()::xid
order by g.workflow, g.subject
on conflict (namespace, workflow, subject) do update set version = excluded.version,
  source = excluded.source, event_id = excluded.event_id
where excluded.version > old.version

-- name: lock_keys
-- The rows of all keys that the batch claims or gives free, in their order; one without a run where
-- there is none, so that whoever comes second waits.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (workflow text, key text)
)
insert into {t}holder as old (namespace, workflow, key, run_id, once, claimed_at, is_replaced)
select k.namespace, k.workflow, k.key, '', '', 0, 0 from k order by k.workflow, k.key
on conflict (namespace, workflow, key) do update set is_replaced = old.is_replaced

-- name: start_judged
-- Runs that hang on more than their event's being new. Decides as `onceward.core.claims` does; the
-- keys are locked, so what is read here stays true. Gives the runs that there are not, and why.
-- Waiters are few or none, and the planner would as soon walk through them as look them up: they are
-- looked up in a lateral that it cannot take apart, and deleted by their place.
with g as materialized (
  select :namespace as namespace, g.* from json_to_recordset(:judged) as g (source text, event_id text,
    run_id text, workflow text, created_at bigint, deadline_at bigint, replay_id text, replay_of text,
    parent_run_id text, parent_generation bigint, is_called boolean, depth bigint, input text,
    is_claimed boolean, subject text, version text, drops_stale boolean, key text, once text,
    window_ms bigint, clash text, payload_hash text, hold_reason text)
), seen as materialized (
  select g.*, v.version as newest,
    coalesce(g.version is not null and (v.source <> g.source or v.event_id <> g.event_id), false) as is_stale,
    h.run_id as holder_run_id, h.claimed_at as held_since, h.payload_hash as held_hash,
    (select r.state from {t}run r where r.namespace = g.namespace and r.run_id = h.run_id) as holder_state
  from g
  join {t}event e on e.namespace = any(array[g.namespace]) and e.source = g.source and e.id = g.event_id
  left join {t}version v on v.namespace = any(array[g.namespace]) and v.workflow = g.workflow
    and v.subject = g.subject
  left join {t}holder h on h.namespace = any(array[g.namespace]) and h.workflow = g.workflow and h.key = g.key
  where e.xmin = pg_current_xact_id()::xid
), judged as materialized (
  select s.*, case
      when is_stale and drops_stale then 'stale'
      when once is null then 'start'
      when holder_state is null then 'claim'
      when holder_state in ('completed', 'failed', 'cancelled') and (once = 'active' or clash = 'replace')
        then 'claim'
      when once = 'window' and held_since + window_ms <= created_at then 'claim'
      when clash = 'return' then 'returned'
      when clash = 'reject' then 'rejected'
      when clash = 'queue' and once = 'window' then 'slot'
      else 'wait' end as fate
  from seen s
), skipped as (
  insert into {t}skipped as s (namespace, workflow, source, event_id, reason, run_id, at, version, newest,
    key, holder_run_id, is_other_payload, parent_run_id)
  select namespace, workflow, source, event_id, fate, run_id, created_at,
    case when fate = 'stale' then version end, case when fate = 'stale' then newest end,
    case when fate <> 'stale' then key end, case when fate <> 'stale' then holder_run_id end,
    (fate <> 'stale' and held_hash is distinct from payload_hash)::int,
    case when fate = 'returned' and is_called then parent_run_id end
  from judged where fate in ('stale', 'returned', 'rejected')
  returning {skip}
), held as (
  update {t}holder h set run_id = j.run_id, once = j.once, window_ms = j.window_ms,
    claimed_at = case j.fate when 'slot' then h.claimed_at + j.window_ms else j.created_at end,
    payload_hash = j.payload_hash, is_replaced = 0
  from judged j
  where j.fate in ('claim', 'slot')
    and h.namespace = any(array[j.namespace]) and h.workflow = j.workflow and h.key = j.key
), replaced as (
  update {t}holder h set is_replaced = 1 from judged j
  where j.fate = 'wait' and j.clash = 'replace'
    and h.namespace = any(array[j.namespace]) and h.workflow = j.workflow and h.key = j.key
), outgoing as materialized (
  select j.namespace, w.run_id, w.place, j.created_at as at, j.run_id as by_run_id
  from judged j
  cross join lateral (
    select w.run_id, w.ctid as place from {t}waiter w
    where w.namespace = j.namespace and w.workflow = j.workflow and w.key = j.key offset 0) w
  where j.fate = 'wait' and j.clash = 'replace'
), unlined as (
  delete from {t}waiter where ctid = any(array(select place from outgoing))
), unqueued as (
  delete from {t}queue q using outgoing o
  where q.namespace = any(array[o.namespace]) and q.run_id = o.run_id
), displaced as (
  update {t}run r set state = 'cancelled', ended_at = o.at, fence = r.fence + 1,
    reason = 'displaced by run ' || o.by_run_id
  from outgoing o where r.namespace = any(array[o.namespace]) and r.run_id = o.run_id
  returning r.namespace, r.parent_run_id, r.is_called, o.at
), woken as (
  update {t}queue q set woken = 1, due_at = least(q.due_at, d.at) from displaced d
  where d.is_called = 1 and q.namespace = any(array[d.namespace]) and q.run_id = d.parent_run_id
), lined as (
  insert into {t}waiter (namespace, workflow, key, run_id, payload_hash)
  select namespace, workflow, key, run_id, payload_hash from judged where fate = 'wait'
), started as (
  insert into {t}run (namespace, run_id, workflow, source, event_id, replay_id, state, generation, attempt,
    failures, crashes, fence, created_at, started_at, deadline_at, replay_of, parent_run_id,
    parent_generation, is_called, depth, input, is_stale, key, reason, problem_at)
  select namespace, run_id, workflow, source, event_id, replay_id,
    case when hold_reason is not null then 'held' when is_claimed then 'running' else 'queued' end,
    1, 1, 0, 0, is_claimed::int, created_at, case when is_claimed then created_at end, deadline_at,
    replay_of, parent_run_id, parent_generation, is_called::int, depth, input, is_stale::int, key,
    coalesce(hold_reason, case when fate in ('slot', 'wait') then :waits end),
    case when hold_reason is not null then created_at end
  from judged where fate not in ('stale', 'returned', 'rejected')
), queued as (
  insert into {t}queue (namespace, run_id, workflow, due_at, process_id, woken, is_suspect)
  select namespace, run_id, workflow,
    case fate when 'slot' then held_since + window_ms when 'wait' then created_at + :far else created_at end,
    case when is_claimed then :process_id end, 0, 0
  from judged where fate not in ('stale', 'returned', 'rejected') and hold_reason is null
)
select * from skipped

-- name: deliver
-- After the events, so that their rows are seen whoever wrote them. The row that this very
-- transaction wrote carries its number: the first delivery of it is the accepted one. A batch that
-- is repeated after a lost reply brings the same deliveries again. Those of an event that has
-- enough are only counted; others of the same batch come before in the order of their `earlier`.
with d as materialized (
  select :namespace as namespace, d.* from json_to_recordset(:deliveries) as d (source text, event_id text,
    delivery_id text, part bigint, received_at bigint, sent_at bigint, is_first boolean, earlier bigint,
    event_hash text, content_hash text, secret_index bigint, request text, body text)
), told as materialized (
  select d.*, d.event_hash <> e.content_hash as is_clash,
    coalesce(d.is_first, false) and e.xmin = pg_current_xact_id()::xid as is_accepted
  from d
  join {t}event e on e.namespace = any(array[d.namespace]) and e.source = d.source and e.id = d.event_id
), placed as materialized (
  select t.*, case when t.is_accepted then 0 else coalesce(t.earlier, 0) + (
    select count(*) from {t}delivery o
    where o.namespace = any(array[t.namespace]) and o.source = t.source and o.source is not null
      and o.event_id = t.event_id
  ) end as place
  from told t
), counted as (
  insert into {t}surplus (namespace, source, event_id, count, last_at)
  select p.namespace, p.source, p.event_id, count(*), max(p.received_at) from placed p
  where p.place >= :kept_max::bigint
  group by p.namespace, p.source, p.event_id order by p.source, p.event_id
  on conflict (namespace, source, event_id) do update set count = {t}surplus.count + excluded.count,
    last_at = excluded.last_at
)
insert into {t}delivery (namespace, source, event_id, delivery_id, part, received_at, outcome, content_hash,
  secret_index, sent_at, request, body)
select p.namespace, p.source, p.event_id, p.delivery_id, coalesce(p.part, 0), p.received_at,
  case when p.is_clash then 'clash' when p.is_accepted then 'accepted' else 'duplicate' end,
  p.content_hash, p.secret_index, p.sent_at, p.request, decode(p.body, 'base64')
from placed p where p.place < :kept_max::bigint
on conflict do nothing

-- name: lock_queue
-- Before several statements of one transaction touch queue rows: in the order that everybody keeps.
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
select 1 from x
join {t}queue q on q.namespace = any(array[x.namespace]) and q.run_id = x.run_id
order by q.run_id for update of q

-- name: lock_queue_joined
-- The same where runs with keys end: whoever waits for one of them in place of a run of its own is woken
-- too. Who these are is fixed by now: the keys are locked.
with x as materialized (
  select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id)
), j as materialized (
  select x.namespace, j.run_id
  from (select :namespace as namespace, e.run_id from unnest(:ended::text[]) as e (run_id)) x
  cross join lateral (
    select s.parent_run_id as run_id from {t}skipped s
    where s.namespace = x.namespace and s.holder_run_id = x.run_id and s.parent_run_id is not null offset 0) j
), a as materialized (
  select namespace, run_id from x union select namespace, run_id from j
)
select 1 from a
join {t}queue q on q.namespace = any(array[a.namespace]) and q.run_id = a.run_id
order by q.run_id for update of q

-- name: move_runs
-- The run and its place in the queue: out of it, due (at once if something woke it meanwhile), or
-- with its holder as before. No indexed column changes, so the update of the run stays in its page.
with m as materialized (
  select :namespace as namespace, m.* from json_to_recordset(:moves) as m (run_id text, fence bigint,
    state text, generation bigint, attempt bigint, failures bigint, crashes bigint, deadline_at bigint,
    started_at bigint, ended_at bigint, output text, error text, reason text, problem_at bigint,
    dismissed_at bigint, warning text, now bigint, due_at bigint, is_out boolean, is_suspect bigint)
), moved as (
  update {t}run r set state = m.state, generation = m.generation, attempt = m.attempt, failures = m.failures,
    crashes = m.crashes, deadline_at = m.deadline_at, started_at = m.started_at, ended_at = m.ended_at,
    output = m.output, error = m.error, reason = m.reason, problem_at = m.problem_at,
    dismissed_at = m.dismissed_at, warning = m.warning
  from m
  where r.namespace = any(array[m.namespace]) and r.run_id = m.run_id and r.fence = m.fence
  returning r.namespace, r.run_id, m.now, m.due_at, m.is_out, m.is_suspect
), ended as (
  delete from {t}queue q using moved m
  where m.is_out and q.namespace = any(array[m.namespace]) and q.run_id = m.run_id
), placed as (
  update {t}queue q set
    process_id = case when m.due_at is null then q.process_id end,
    due_at = case when m.due_at is null then q.due_at when q.woken = 1 then least(m.due_at, m.now)
      else m.due_at end,
    woken = case when m.due_at is null then q.woken else 0 end,
    is_suspect = m.is_suspect
  from moved m
  where not m.is_out and q.namespace = any(array[m.namespace]) and q.run_id = m.run_id
    and (m.due_at is not null or q.is_suspect <> m.is_suspect)
)
select run_id from moved

-- name: wake
-- Whoever waits for the end of a run that still has the fence it ended with.
with w as materialized (
  select :namespace as namespace, w.* from json_to_recordset(:wakes) as w (run_id text, now bigint,
    by_run text, by_fence bigint)
), held as materialized (
  select w.* from w
  join {t}run r on r.namespace = any(array[w.namespace]) and r.run_id = w.by_run and r.fence = w.by_fence
)
update {t}queue q set woken = 1, due_at = least(q.due_at, h.now) from held h
where q.namespace = any(array[h.namespace]) and q.run_id = h.run_id

-- name: log_attempts
with a as materialized (
  select :namespace as namespace, a.* from json_to_recordset(:attempts) as a (run_id text, fence bigint,
    generation bigint, attempt bigint, started_at bigint, ended_at bigint, outcome text, error text,
    process_id text, failed_steps text)
)
insert into {t}attempt (namespace, run_id, generation, attempt, started_at, ended_at, outcome, error,
  process_id, failed_steps)
select a.namespace, a.run_id, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.error,
  a.process_id, a.failed_steps
from a
join {t}run r on r.namespace = any(array[a.namespace]) and r.run_id = a.run_id and r.fence = a.fence
on conflict do nothing

-- name: free_keys
-- Runs that ended and still have the fence they ended with: out of line, and the key that one holds
-- goes to the next who waits, or free; then it is due. A holder for whose key nobody waits any more
-- need not make room. Who waits for such an end in place of a run of its own is woken.
with f as materialized (
  select :namespace as namespace, f.* from json_to_recordset(:freed) as f (run_id text, fence bigint,
    workflow text, key text, state text, now bigint)
), ended as materialized (
  select f.* from f
  join {t}run r on r.namespace = any(array[f.namespace]) and r.run_id = f.run_id and r.fence = f.fence
), joined as materialized (
  select e.namespace, j.parent_run_id, e.now from ended e
  cross join lateral (
    select s.parent_run_id from {t}skipped s
    where s.namespace = e.namespace and s.holder_run_id = e.run_id and s.parent_run_id is not null
      offset 0) j
), woken as (
  update {t}queue q set woken = 1, due_at = least(q.due_at, j.now) from joined j
  where q.namespace = any(array[j.namespace]) and q.run_id = j.parent_run_id
), unlined as (
  delete from {t}waiter where ctid = any(array(
    select w.place from ended e
    cross join lateral (
      select w.ctid as place from {t}waiter w
      where w.namespace = e.namespace and w.workflow = e.workflow and w.key = e.key
        and w.run_id = e.run_id offset 0) w))
), spared as (
  update {t}holder h set is_replaced = 0 from ended e
  where h.namespace = any(array[e.namespace]) and h.workflow = e.workflow and h.key = e.key
    and h.run_id <> e.run_id and h.run_id not in (select run_id from ended)
    and 0 = (
      select count(*) from {t}waiter w
      where w.namespace = e.namespace and w.workflow = e.workflow and w.key = e.key
        and w.run_id not in (select run_id from ended))
), free as materialized (
  select e.*, h.once, (
    select min(w.run_id) from {t}waiter w
    where w.namespace = e.namespace and w.workflow = e.workflow and w.key = e.key
      and w.run_id not in (select run_id from ended)) as next_run_id
  from ended e
  join {t}holder h on h.namespace = any(array[e.namespace]) and h.workflow = e.workflow and h.key = e.key
    and h.run_id = e.run_id
), next as materialized (
  select n.namespace, n.workflow, n.key, n.next_run_id, n.now, w.payload_hash, w.place from free n
  cross join lateral (
    select w.payload_hash, w.ctid as place from {t}waiter w
    where w.namespace = n.namespace and w.workflow = n.workflow and w.key = n.key
      and w.run_id = n.next_run_id offset 0) w
), promoted as (
  update {t}holder h set run_id = n.next_run_id, claimed_at = n.now, payload_hash = n.payload_hash,
    is_replaced = 0
  from next n
  where h.namespace = any(array[n.namespace]) and h.workflow = n.workflow and h.key = n.key
), left_line as (
  delete from {t}waiter where ctid = any(array(select place from next))
), due as (
  update {t}queue q set due_at = n.now from next n
  where q.namespace = any(array[n.namespace]) and q.run_id = n.next_run_id
), told as (
  update {t}run r set reason = null from next n
  where r.namespace = any(array[n.namespace]) and r.run_id = n.next_run_id
), released as (
  delete from {t}holder h using free n
  where n.next_run_id is null and (n.once = 'active' or (n.once = 'ever' and n.state = 'cancelled'))
    and h.namespace = any(array[n.namespace]) and h.workflow = n.workflow and h.key = n.key
), given_back as (
  update {t}holder h set claimed_at = h.claimed_at - h.window_ms, is_replaced = 0 from free n
  where n.next_run_id is null and n.once = 'window' and n.state = 'cancelled'
    and h.namespace = any(array[n.namespace]) and h.workflow = n.workflow and h.key = n.key
)
select run_id from free

-- name: open_waits
-- Of runs that still have the fence they wait with.
with w as materialized (
  select :namespace as namespace, w.* from json_to_recordset(:waits) as w (run_id text, fence bigint,
    generation bigint, name text, item text, ordinal bigint, part bigint, type text, subject text, source text,
    since_at bigint, until_at bigint, condition text)
)
insert into {t}wait (namespace, run_id, generation, name, item, ordinal, part, type, subject, source, since_at,
  until_at, condition)
select w.namespace, w.run_id, w.generation, w.name, w.item, w.ordinal, w.part, w.type, w.subject, w.source,
  w.since_at, w.until_at, w.condition
from w
join {t}run r on r.namespace = any(array[w.namespace]) and r.run_id = w.run_id and r.fence = w.fence
on conflict (namespace, run_id, generation, name, item, ordinal, part) do update set type = excluded.type,
  subject = excluded.subject, source = excluded.source, since_at = excluded.since_at,
  until_at = excluded.until_at, condition = excluded.condition

-- name: end_some_waits
-- Waits that are over, and the offers that they took.
with d as materialized (
  select :namespace as namespace, d.* from json_to_recordset(:done) as d (run_id text, fence bigint,
    generation bigint, name text, item text, ordinal bigint, source text, event_id text)
), held as materialized (
  select d.* from d
  join {t}run r on r.namespace = any(array[d.namespace]) and r.run_id = d.run_id and r.fence = d.fence
), taken as (
  delete from {t}offer o using held h
  where o.namespace = any(array[h.namespace]) and o.run_id = h.run_id and o.source = h.source
    and o.event_id = h.event_id
)
delete from {t}wait w using held h
where w.namespace = any(array[h.namespace]) and w.run_id = h.run_id and w.generation = h.generation
  and w.name = h.name and w.item = h.item and w.ordinal = h.ordinal

-- name: end_waits
-- All of runs that ended, if they have the fence they ended with.
with h as materialized (
  select :namespace as namespace, h.* from json_to_recordset(:holders) as h (run_id text, fence bigint)
), ended as materialized (
  select h.* from h
  join {t}run r on r.namespace = any(array[h.namespace]) and r.run_id = h.run_id and r.fence = h.fence
), unoffered as (
  delete from {t}offer o using ended e where o.namespace = any(array[e.namespace]) and o.run_id = e.run_id
)
delete from {t}wait w using ended e where w.namespace = any(array[e.namespace]) and w.run_id = e.run_id

-- name: make_promises
-- Again: a generation that keeps one from an older one of the same run.
with p as materialized (
  select :namespace as namespace, p.* from json_to_recordset(:promises) as p (token_hash text, run_id text,
    fence bigint, generation bigint, name text, item text, ordinal bigint, created_at bigint,
    expires_at bigint)
)
insert into {t}promise as old (namespace, token_hash, run_id, generation, name, item, ordinal, created_at,
  state, expires_at)
select p.namespace, p.token_hash, p.run_id, p.generation, p.name, p.item, p.ordinal, p.created_at, 'open',
  p.expires_at
from p
join {t}run r on r.namespace = any(array[p.namespace]) and r.run_id = p.run_id and r.fence = p.fence
on conflict (namespace, token_hash) do update set generation = excluded.generation
where old.run_id = excluded.run_id and old.state = 'open'

-- name: drop_unclaimed
-- Rows of keys that were locked and that nobody took.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (workflow text, key text)
)
delete from {t}holder h using k
where h.namespace = any(array[k.namespace]) and h.workflow = k.workflow and h.key = k.key and h.run_id = ''

-- name: claim
-- A compare-and-set: whoever comes second finds an owner in the row and leaves it. SKIP LOCKED only
-- saves it the wait.
with due as materialized (
  select namespace, run_id, due_at from {t}queue
  where namespace = :namespace and process_id is null and due_at <= :now and is_suspect = :suspects
    and workflow = any(:workflows)
  order by due_at limit :limit for update {skip_locked}
), owned as (
  update {t}queue q set process_id = :process_id, woken = 0 from due d
  where q.namespace = any(array[d.namespace]) and q.run_id = d.run_id
  returning q.namespace, q.run_id, d.due_at
), claimed as (
  update {t}run r set fence = r.fence + 1, started_at = coalesce(r.started_at, :now),
    state = case r.state when 'cancelling' then 'cancelling' else 'running' end
  from owned o where r.namespace = any(array[o.namespace]) and r.run_id = o.run_id
  returning {run}, o.namespace, o.due_at
)
select {run}, {event} from claimed r
left join {t}event e on e.namespace = any(array[r.namespace]) and e.source = r.source and e.id = r.event_id
order by r.due_at, r.run_id

-- After a batch. ---------------------------------------------------------------------------------

-- name: waits_for
-- Behind the commit of a batch that stored events, in the same round trip: whoever waits looks after
-- its own commit too, so one of the two sees the other. Waits are few or none, and are looked up in a
-- lateral like waiters.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:places) as k (type text, subject text)
)
select {wait} from k
cross join lateral (
  select w.* from {t}wait w
  where w.namespace = k.namespace and w.type = k.type and w.subject = k.subject offset 0) w

-- name: notify
-- A hint for other processes, if there are any; one transaction of its own, since commits that
-- notify wait for each other.
select pg_notify(:channel, :namespace) from {t}process
where namespace = :namespace and process_id <> :process_id limit 1

-- name: hint
select pg_notify(:channel, :payload)

-- name: winners
-- What the first accept of each event made.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (source text, id text)
)
select e.source, e.id, e.content_hash, e.received_at, r.workflow, r.run_id from k
join {t}event e on e.namespace = any(array[k.namespace]) and e.source = k.source and e.id = k.id
left join {t}run r on r.namespace = any(array[k.namespace]) and r.source = k.source and r.event_id = k.id
  and r.replay_id = ''

-- name: skipped_of
-- What the first accept of each event did not make.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (source text, id text)
)
select {skip} from k
join {t}skipped s on s.namespace = any(array[k.namespace]) and s.source = k.source and s.event_id = k.id

-- name: accepted_deliveries
-- Which of the deliveries are recorded as the first of their event.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (source text, event_id text,
    delivery_id text)
)
select d.source, d.event_id, d.delivery_id from k
join {t}delivery d on d.namespace = any(array[k.namespace]) and d.source = k.source
  and d.event_id = k.event_id and d.delivery_id = k.delivery_id
where d.outcome = 'accepted'

-- Deliveries that are not events. ---------------------------------------------------------------

-- name: forget_posted
with x as materialized (
  select :namespace as namespace, x.outbox_id from unnest(:outbox_ids::text[]) as x (outbox_id)
)
delete from {t}outbox o using x where o.namespace = any(array[x.namespace]) and o.outbox_id = x.outbox_id

-- name: lock_run
-- Waits for the end of whatever transaction has it.
select 1 from {t}run where namespace = :namespace and run_id = :run_id for update

-- name: keep_body
update {t}delivery d set body = decode(b.body, 'base64')
from json_to_recordset(:rows) as b (delivery_id text, body text)
where d.namespace = :namespace and d.delivery_id = b.delivery_id and d.part = 0 and d.body is null

-- name: first_under
-- Whoever comes second waits for the first to commit, and is given its row.
insert into {t}proof as p (namespace, source, proof_hash, content_hash, until_at)
values (:namespace, :source, :proof_hash, :content_hash, :until_at)
on conflict (namespace, source, proof_hash) do update set content_hash = p.content_hash
returning p.content_hash

-- name: forget_proofs
delete from {t}proof where (namespace, source, proof_hash) in (
  select namespace, source, proof_hash from {t}proof
  where namespace = :namespace and until_at is not null and until_at < :before
  order by until_at limit 100 for update skip locked)

-- name: keep_unparsed
insert into {t}unparsed (namespace, source, content_hash, delivery_id, received_at, last_at, copies, error,
  request, body, secret_index, sent_at)
select :namespace, u.source, u.content_hash, u.delivery_id, u.received_at, u.last_at, u.copies, u.error,
  u.request, decode(u.body, 'base64'), u.secret_index, u.sent_at
from json_to_recordset(:rows) as u (source text, content_hash text, delivery_id text, received_at bigint,
  last_at bigint, copies bigint, error text, request text, body text, secret_index bigint, sent_at bigint)
on conflict (namespace, source, content_hash) do update set
  copies = {t}unparsed.copies + excluded.copies, last_at = excluded.last_at, error = excluded.error

-- name: forget_unparsed
delete from {t}unparsed
where namespace = :namespace and source = :source and content_hash = :content_hash

-- name: add_refusals
insert into {t}refusal (namespace, source, reason, count, first_at, last_at, samples)
select :namespace, f.source, f.reason, f.count, f.first_at, f.last_at, f.samples
from json_to_recordset(:rows) as f (source text, reason text, count bigint, first_at bigint, last_at bigint,
  samples text)
order by f.source, f.reason
on conflict (namespace, source, reason) do update set count = {t}refusal.count + excluded.count,
  last_at = excluded.last_at, samples = excluded.samples

-- name: lock_committer
-- Waits for the end of whatever batch is under way.
select epoch, last_batch from {t}committer
where namespace = :namespace and process_id = :process_id for update

-- name: shut_batch_out
-- The lost batch did not commit; from now on it cannot, as its predecessor is not the last one.
update {t}committer set last_batch = :marker where namespace = :namespace and process_id = :process_id

-- name: cut_off
-- Ends the connection that holds a committer row: a batch of a process that stopped half-way, or
-- whose rest the network swallowed. No timeout of the server's covers a pipeline cut in two.
select pg_terminate_backend(l.pid) from {t}committer c
join pg_catalog.pg_locks l on l.locktype = 'transactionid' and l.transactionid = c.xmax and l.granted
  and l.mode = 'ExclusiveLock' and l.pid <> pg_backend_pid()
where c.namespace = :namespace and c.process_id = :process_id

-- Waits and promises. ---------------------------------------------------------------------------

-- name: insert_offers
with o as materialized (
  select :namespace as namespace, o.* from json_to_recordset(:offers) as o (run_id text, source text,
    event_id text)
)
insert into {t}offer (namespace, run_id, source, event_id)
select o.namespace, o.run_id, o.source, o.event_id from o order by o.run_id, o.source, o.event_id
on conflict do nothing

-- name: wake_runs
-- Their rows in the queue are locked.
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
update {t}queue q set woken = 1, due_at = least(q.due_at, :now::bigint) from x
where q.namespace = any(array[x.namespace]) and q.run_id = x.run_id

-- name: offers
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
select o.run_id, {event} from x
cross join lateral (
  select o.* from {t}offer o where o.namespace = x.namespace and o.run_id = x.run_id offset 0) o
join {t}event e on e.namespace = any(array[o.namespace]) and e.source = o.source and e.id = o.event_id
order by e.received_at, e.source, e.id

-- name: promises
with x as materialized (select :namespace as namespace, x.hash from unnest(:hashes::text[]) as x (hash))
select {promise} from x
join {t}promise p on p.namespace = any(array[x.namespace]) and p.token_hash = x.hash

-- name: settle_promise
-- Only while somebody can hear it: of a run that is being cancelled only what its clean-up waits for, or
-- made after its code was told; of one that is being undone, nothing.
update {t}promise p set state = :state::text, ended_at = :now::bigint, output = :output
where p.namespace = :namespace and p.token_hash = :token_hash and p.state = 'open'
  and (:state::text = 'expired' or (
    (p.expires_at is null or p.expires_at > :now::bigint)
    and (select r.generation = p.generation and r.state not in ('completed', 'failed', 'cancelled')
      and (r.state <> 'cancelling' or exists (
        select 1 from {t}step c
        where c.namespace = p.namespace and c.run_id = p.run_id and c.generation = p.generation
          and c.state = 'cancelled' and (c.ended_at <= p.created_at or exists (
            select 1 from {t}step w
            where w.namespace = p.namespace and w.run_id = p.run_id and w.generation = p.generation
              and w.name = p.name || ' result' and w.item = p.item and w.kind = 'promise' and w.state = 'open'))))
      from {t}run r where r.namespace = p.namespace and r.run_id = p.run_id)
    and not exists (
      select 1 from {t}step u
      where u.namespace = p.namespace and u.run_id = p.run_id and u.generation = p.generation
        and u.name = 'undo everything' and u.item = '' and u.ordinal = 1 and u.kind = 'undo')))
returning p.run_id

-- Processes. -------------------------------------------------------------------------------------

-- name: clock
select extract(epoch from clock_timestamp())::float8 * 1000

-- name: heartbeat
update {t}process set lease_until = :lease_until
where namespace = :namespace and process_id = :process_id and epoch = :epoch
returning extract(epoch from clock_timestamp())::float8 * 1000

-- name: insert_process
-- Again after a lost reply: the same.
insert into {t}process as old (namespace, process_id, epoch, instance, host, pid, version, started_at,
  lease_until)
values (:namespace, :process_id, :epoch, :instance, :host, :pid, :version, :started_at, :lease_until)
on conflict (namespace, process_id) do update set lease_until = excluded.lease_until
where old.epoch = excluded.epoch
returning 1

-- name: insert_committer
insert into {t}committer (namespace, process_id, epoch) values (:namespace, :process_id, :epoch)
on conflict do nothing

-- name: same_instance
select process_id from {t}process
where namespace = :namespace and instance = :instance and process_id <> :process_id
order by process_id

-- name: save_workflows
insert into {t}workflow (namespace, name, triggers, seen_at, deadline_ms, rules, retention, tags)
select :namespace, w.name, w.triggers, w.seen_at, w.deadline_ms, w.rules, w.retention, w.tags
from json_to_recordset(:workflows) as w (name text, triggers text, seen_at bigint, deadline_ms bigint,
  rules text, retention text, tags text)
on conflict (namespace, name) do update set triggers = excluded.triggers, seen_at = excluded.seen_at,
  deadline_ms = excluded.deadline_ms, rules = excluded.rules, retention = excluded.retention,
  tags = excluded.tags

-- name: count_registration
insert into {t}registry as old (namespace, registrations) values (:namespace, 1)
on conflict (namespace) do update set registrations = old.registrations + 1

-- name: forget_workflow
delete from {t}workflow where namespace = :namespace and name = :workflow returning name

-- name: expired
-- Processes whose lease ended; and owners that are not registered, since whoever deletes their row
-- by hand would leave their runs to nobody (B013).
select process_id, lease_until from {t}process
where namespace = :namespace and process_id <> :skip and lease_until < :now
union
select q.process_id, null from {t}queue q
where q.namespace = :namespace and q.process_id is not null and q.process_id <> :skip
  and not exists (
    select 1 from {t}process p where p.namespace = :namespace and p.process_id = q.process_id)
order by process_id

-- name: owns_any
select 1 from {t}queue where namespace = :namespace and process_id = :process_id limit 1

-- name: lock_process
-- Judged again under the lock: a heartbeat may have come meanwhile.
select lease_until from {t}process where namespace = :namespace and process_id = :process_id for update

-- name: shut_out
delete from {t}committer where namespace = :namespace and process_id = :process_id

-- name: forget_process
delete from {t}process where namespace = :namespace and process_id = :process_id

-- name: owned_runs
select {run} from {t}queue q
join {t}run r on r.namespace = any(array[q.namespace]) and r.run_id = q.run_id
where q.namespace = :namespace and q.process_id = :process_id
order by q.run_id for update of q

-- name: lose_runs
-- The holder is lost: the next claim is a new attempt, durable before any body starts.
with l as materialized (
  select :namespace as namespace, l.* from json_to_recordset(:lost) as l (run_id text, state text,
    attempt bigint, crashes bigint, reason text, problem_at bigint)
)
update {t}run r set state = l.state, attempt = l.attempt, crashes = l.crashes, fence = r.fence + 1,
  reason = l.reason, problem_at = l.problem_at
from l where r.namespace = any(array[l.namespace]) and r.run_id = l.run_id

-- name: hold_damaged
-- Whatever else the row holds stays for whoever repairs it.
with l as materialized (
  select :namespace as namespace, l.* from json_to_recordset(:lost) as l (run_id text, reason text,
    problem_at bigint)
)
update {t}run r set state = 'held', fence = r.fence + 1, reason = l.reason, problem_at = l.problem_at
from l where r.namespace = any(array[l.namespace]) and r.run_id = l.run_id

-- name: requeue_lost
with l as materialized (
  select :namespace as namespace, l.* from json_to_recordset(:released) as l (run_id text, is_suspect bigint)
)
update {t}queue q set process_id = null, due_at = :now, woken = 0, is_suspect = l.is_suspect
from l where q.namespace = any(array[l.namespace]) and q.run_id = l.run_id

-- name: leave_queue
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
delete from {t}queue q using x where q.namespace = any(array[x.namespace]) and q.run_id = x.run_id

-- name: lock_owned
select 1 from {t}queue where namespace = :namespace and process_id = :process_id
order by run_id for update

-- name: put_back
-- Runs of a process that leaves: due at once, nothing charged.
with mine as materialized (
  select namespace, run_id from {t}queue where namespace = :namespace and process_id = :process_id
)
update {t}run r set state = 'queued' from mine m
where r.namespace = any(array[m.namespace]) and r.run_id = m.run_id and r.state = 'running'

-- name: put_back_queue
update {t}queue set process_id = null, due_at = :now, woken = 0
where namespace = :namespace and process_id = :process_id

-- name: give_back
-- Runs that a process owns and does not have in memory: due at once, nothing charged.
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id)),
back as (
  update {t}queue q set process_id = null, due_at = :now from x
  where q.namespace = any(array[x.namespace]) and q.run_id = x.run_id and q.process_id = :process_id
  returning q.namespace, q.run_id
)
update {t}run r set state = 'queued' from back b
where r.namespace = any(array[b.namespace]) and r.run_id = b.run_id and r.state = 'running'

-- Operators. -------------------------------------------------------------------------------------

-- name: stop_owner
-- An update, not a lock: under SERIALIZABLE a batch that is already under way has to fail.
with place as materialized (
  select namespace, process_id from {t}queue where namespace = :namespace and run_id = :run_id
)
update {t}committer c set epoch = c.epoch from place p
where c.namespace = any(array[p.namespace]) and c.process_id = p.process_id

-- name: sum_of_seq
-- Every record that is saved makes it larger. The last number alone does not: a transaction of the
-- user's numbers its record ahead.
select coalesce(sum(seq), 0) from {t}step
where namespace = :namespace and run_id = :run_id and generation = :generation

-- name: steer_run
-- Guarded by what the operator saw.
update {t}run set state = :state, generation = :generation, attempt = :attempt, failures = :failures,
  crashes = :crashes, deadline_at = :deadline_at, started_at = :started_at, ended_at = :ended_at,
  output = :output, error = :error, reason = :reason, problem_at = :problem_at,
  dismissed_at = :dismissed_at, warning = :warning, fence = fence + 1, key = coalesce(:key, key)
where namespace = :namespace and run_id = :run_id and state = :expected_state
  and generation = :expected_generation and fence = :expected_fence
returning fence

-- name: holder_of
select h.run_id, h.claimed_at, h.payload_hash, r.state, h.once, h.window_ms from {t}holder h
left join {t}run r on r.namespace = h.namespace and r.run_id = h.run_id
where h.namespace = :namespace and h.workflow = :workflow and h.key = :key

-- name: hold_key
-- Its row is locked.
update {t}holder set run_id = :run_id, once = :once, window_ms = :window_ms, claimed_at = :claimed_at,
  payload_hash = :payload_hash, is_replaced = 0
where namespace = :namespace and workflow = :workflow and key = :key

-- name: unreplace
-- The holder is being cancelled: nobody needs to ask again.
update {t}holder set is_replaced = 0
where namespace = :namespace and workflow = :workflow and key = :key and run_id = :run_id

-- name: requeue
insert into {t}queue (namespace, run_id, workflow, due_at, process_id, woken, is_suspect)
select namespace, run_id, workflow, :due_at, null, 0, :is_suspect
from {t}run where namespace = :namespace and run_id = :run_id
on conflict (namespace, run_id) do update set due_at = excluded.due_at, process_id = null,
  is_suspect = excluded.is_suspect

-- name: reopen
-- Failures that ended the attempt, and what they cut off, run again with all their tries; a record
-- that backs off goes on at once with those it has left; a sleep keeps its deadline. Every other
-- record stays (RULINGS 19, 23). The copy of a failure becomes a step of this run: it has a key of its
-- own and is undone here, and a call calls a run of its own.
with k as materialized (
  select :namespace as namespace, k.* from json_to_recordset(:keys) as k (name text, item text, ordinal bigint)
)
update {t}step s set tries = case s.state when 'open' then s.tries else 0 end, state = 'open',
  output = null, error = null, ended_at = null, wake_at = case s.kind when 'sleep' then s.wake_at end,
  begun = case s.state when 'failed' then null else s.begun end,
  child_run_id = case when s.origin is null then s.child_run_id end, origin = null,
  started_at = case when s.origin is null or s.key_scope = 'business' then s.started_at else :now end
from k
where s.namespace = any(array[k.namespace]) and s.run_id = :run_id and s.generation = :generation
  and s.name = k.name and s.item = k.item and s.ordinal = k.ordinal
  and (s.state in ('failed', 'cut') or (s.state = 'open' and s.kind in ('run', 'transaction', 'undo')))

-- name: insert_audit
insert into {t}audit (namespace, run_id, audit_id, at, verb, actor, detail, request_id)
values (:namespace, :run_id, :audit_id, :at, :verb, :actor, :detail, :request_id)

-- name: add_audit
-- Of what is written by itself; nothing if its request has an entry.
insert into {t}audit (namespace, run_id, audit_id, at, verb, actor, detail, request_id)
values (:namespace, :run_id, :audit_id, :at, :verb, :actor, :detail, :request_id)
on conflict do nothing
returning 1

-- name: audited
select 1 from {t}audit where namespace = :namespace and run_id = :run_id and audit_id = :audit_id

-- name: has_event
-- Locked, so that its payload is not pruned beside the run that will need it.
select (payload is not null)::int from {t}event where namespace = :namespace and source = :source and id = :event_id
for share

-- name: insert_replay
with added as (
  insert into {t}run (namespace, run_id, workflow, source, event_id, replay_id, state, generation, attempt,
    failures, crashes, fence, created_at, deadline_at, replay_of, parent_run_id, parent_generation, is_called,
    depth, input, is_stale, key)
  values (:namespace, :run_id, :workflow, :source, :event_id, :replay_id, 'queued', 1, 1, 0, 0, 0, :created_at,
    :deadline_at, :replay_of, :parent_run_id, :parent_generation, :is_called, :depth, :input, :is_stale, :key)
  on conflict do nothing
  returning run_id, workflow, created_at
), queued as (
  insert into {t}queue (namespace, run_id, workflow, due_at, woken, is_suspect)
  select :namespace, run_id, workflow, created_at, 0, 0 from added
)
select run_id from added

-- name: replayed
select run_id from {t}run
where namespace = :namespace and source = :source and event_id = :event_id and workflow = :workflow
  and replay_id = :replay_id

-- Reads that differ from the other database. -----------------------------------------------------

-- name: histories
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
select s.run_id, {step} from x
join {t}run r on r.namespace = any(array[x.namespace]) and r.run_id = x.run_id
join {t}step s on s.namespace = any(array[r.namespace]) and s.run_id = r.run_id and s.generation = r.generation
order by s.run_id, s.seq

-- name: states
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
select {run} from x join {t}run r on r.namespace = any(array[x.namespace]) and r.run_id = x.run_id

-- name: listed
-- Runs by id with what a list shows beside them. The steps are looked at of failed runs alone.
with x as materialized (select :namespace as namespace, x.run_id from unnest(:run_ids::text[]) as x (run_id))
select {run}, e.type, e.subject, q.due_at, q.process_id,
  case when r.state = 'failed' then exists (
    select 1 from {t}step s
    where s.namespace = any(array[r.namespace]) and s.run_id = r.run_id and s.generation = r.generation
      and s.kind = 'undo'
  ) else false end
from x
join {t}run r on r.namespace = any(array[x.namespace]) and r.run_id = x.run_id
left join {t}event e on e.namespace = any(array[x.namespace]) and e.source = r.source and e.id = r.event_id
left join {t}queue q on q.namespace = any(array[x.namespace]) and q.run_id = x.run_id

-- name: look
-- One row, made anew for each poll; each part is a few steps in an index, however many runs sleep.
select
  (select min(due_at) from {t}queue
   where namespace = :namespace and process_id is null and workflow = any(:workflows)),
  (select min(lease_until) from {t}process where namespace = :namespace and process_id <> :process_id),
  (select count(*) from {t}queue where namespace = :namespace and process_id = :process_id),
  (select string_agg(run_id, ',') from {t}queue
   where namespace = :namespace and process_id = :process_id and woken = 1),
  (select string_agg(run_id, ',') from {t}holder where namespace = :namespace and is_replaced = 1),
  exists (select 1 from {t}outbox where namespace = :namespace),
  (select min(due_at) from {t}notice
   where namespace = :namespace and due_at is not null and address_id = any(:addresses)),
  coalesce((select registrations from {t}registry where namespace = :namespace), 0)
