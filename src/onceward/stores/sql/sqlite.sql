-- Statements of the SQLite store. Each runs inside a transaction that begins immediate, so
-- that what it read is still true when it writes.

-- name: guard
-- One row, or this process was evicted and may not write.
update {t}committer set last_batch = ? where namespace = ? and process_id = ? and epoch = ?

-- name: fences
-- One row, whatever their number: a row is a step, and between steps Python's lock changes hands.
select json_group_object(run_id, fence) from {t}run
where namespace = ? and run_id in (select value from json_each(?))

-- name: insert_event
-- The unique key decides who won; the loser reads what the winner made.
insert into {t}event (namespace, source, id, type, payload, received_at, subject, occurred_at, content_hash,
  id_is_signed, trace)
values (?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing

-- name: insert_new_events
-- Fails whole if one of them is there already; then they are inserted one by one.
insert into {t}event (namespace, source, id, type, payload, received_at, subject, occurred_at, content_hash,
  id_is_signed, trace)
values (?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: winner
select workflow, run_id from {t}run{by_identity}
where namespace = ? and source = ? and source is not null and event_id = ? and replay_id = ''

-- name: content_hash
select content_hash from {t}event where namespace = ? and source = ? and id = ?

-- name: insert_run
insert into {t}run (namespace, run_id, workflow, source, event_id, replay_id, state, generation, attempt,
  failures, crashes, fence, created_at, started_at, deadline_at, replay_of, parent_run_id, parent_generation,
  is_called, depth, input, is_stale, key, reason, problem_at)
values (?1, ?, ?, ?, ?, ?, ?, 1, 1, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing

-- name: insert_queue
insert into {t}queue (namespace, run_id, workflow, due_at, process_id, woken, is_suspect)
values (?1, ?, ?, ?, ?, 0, 0)

-- name: insert_delivery
-- A batch that is repeated after a lost reply brings the same deliveries again.
insert into {t}delivery (namespace, source, event_id, delivery_id, part, received_at, outcome, content_hash,
  secret_index, sent_at, request, body)
values (?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing

-- name: kept_deliveries
select count(*) from {t}delivery{by_event} where namespace = ? and source = ? and event_id = ?

-- name: add_surplus
insert into {t}surplus (namespace, source, event_id, count, last_at) values (?, ?, ?, 1, ?)
on conflict (namespace, source, event_id) do update set count = count + 1, last_at = excluded.last_at

-- name: keep_body
update {t}delivery set body = ?3 where namespace = ?1 and delivery_id = ?2 and part = 0 and body is null

-- name: first_under
insert into {t}proof (namespace, source, proof_hash, content_hash, until_at) values (?, ?, ?, ?, ?)
on conflict (namespace, source, proof_hash) do update set content_hash = content_hash
returning content_hash

-- name: forget_proofs
delete from {t}proof where namespace = ?1 and (source, proof_hash) in (
  select source, proof_hash from {t}proof
  where namespace = ?1 and until_at is not null and until_at < ?2 order by until_at limit 100)

-- name: keep_unparsed
insert into {t}unparsed (namespace, source, content_hash, delivery_id, received_at, last_at, copies, error,
  request, body, secret_index, sent_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, source, content_hash) do update set copies = copies + excluded.copies,
  last_at = excluded.last_at, error = excluded.error

-- name: forget_unparsed
delete from {t}unparsed where namespace = ? and source = ? and content_hash = ?

-- name: add_refusal
insert into {t}refusal (namespace, source, reason, count, first_at, last_at, samples)
values (?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, source, reason) do update set count = count + excluded.count,
  last_at = excluded.last_at, samples = excluded.samples

-- name: raise_version
-- One row if the version is newer than all that were accepted of its subject, or the newest comes
-- again after retention took its event.
insert into {t}version (namespace, workflow, subject, version, source, event_id) values (?, ?, ?, ?, ?, ?)
on conflict (namespace, workflow, subject) do update set version = max(version, excluded.version),
  source = excluded.source, event_id = excluded.event_id
where excluded.version > {t}version.version
  or (excluded.source = {t}version.source and excluded.event_id = {t}version.event_id)

-- name: newest
select version from {t}version where namespace = ? and workflow = ? and subject = ?

-- name: skipped_of
select {skip} from {t}skipped s where s.namespace = ? and s.source = ? and s.event_id = ?

-- name: insert_skipped
insert into {t}skipped (namespace, workflow, source, event_id, reason, run_id, at, version, newest, key,
  holder_run_id, is_other_payload, parent_run_id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: joined
select s.parent_run_id from {t}skipped s{by_joined}
where s.namespace = ? and s.holder_run_id = ? and s.parent_run_id is not null

-- name: holder_of
-- Without a state there is no such run any more.
select h.run_id, h.claimed_at, h.payload_hash, r.state, h.once, h.window_ms from {t}holder h
left join {t}run r on r.namespace = h.namespace and r.run_id = h.run_id
where h.namespace = ? and h.workflow = ? and h.key = ?

-- name: hold_key
insert into {t}holder (namespace, workflow, key, run_id, once, window_ms, claimed_at, payload_hash, is_replaced)
values (?, ?, ?, ?, ?, ?, ?, ?, 0)
on conflict (namespace, workflow, key) do update set run_id = excluded.run_id, once = excluded.once,
  window_ms = excluded.window_ms, claimed_at = excluded.claimed_at, payload_hash = excluded.payload_hash,
  is_replaced = 0

-- name: replace_holder
update {t}holder set is_replaced = ?4 where namespace = ?1 and workflow = ?2 and key = ?3

-- name: line_up
insert into {t}waiter (namespace, workflow, key, run_id, payload_hash) values (?, ?, ?, ?, ?)

-- name: waiters
select w.run_id, w.payload_hash, r.parent_run_id, r.is_called from {t}waiter w
join {t}run r on r.namespace = w.namespace and r.run_id = w.run_id
where w.namespace = ? and w.workflow = ? and w.key = ? order by w.run_id

-- name: leave_line
delete from {t}waiter where namespace = ? and workflow = ? and key = ? and run_id = ?

-- name: displace
update {t}run set state = 'cancelled', ended_at = ?3, fence = fence + 1, reason = ?4
where namespace = ?1 and run_id = ?2

-- name: promote
update {t}queue set due_at = ?3 where namespace = ?1 and run_id = ?2

-- name: forget_reason
update {t}run set reason = null where namespace = ? and run_id = ?

-- name: release_key
delete from {t}holder where namespace = ? and workflow = ? and key = ?

-- name: give_window_back
-- Its slot is free again; the one before it, if there was one, ends when it did.
update {t}holder set claimed_at = claimed_at - window_ms, is_replaced = 0
where namespace = ? and workflow = ? and key = ?

-- name: save_step
-- A saved result never changes (I4); an open record may, and a failure may be opened again.
insert into {t}step (namespace, run_id, generation, name, item, ordinal, seq, kind, state, attempt, tries,
  started_at, ended_at, output, error, wake_at, child_run_id, origin, inputs_hash, effect, key_scope,
  key_memory_ms, begun)
values (?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, run_id, generation, name, item, ordinal) do update set
  seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, tries = excluded.tries,
  ended_at = excluded.ended_at, output = excluded.output, error = excluded.error,
  wake_at = excluded.wake_at, child_run_id = excluded.child_run_id, effect = excluded.effect,
  key_scope = excluded.key_scope, key_memory_ms = excluded.key_memory_ms, begun = excluded.begun
where {t}step.state = 'open' or ({t}step.state in ('failed', 'cut') and excluded.state = 'open')

-- name: move_run
update {t}run set state = m.column3, generation = m.column4, attempt = m.column5, failures = m.column6,
  crashes = m.column7, deadline_at = m.column8, started_at = m.column9, ended_at = m.column10,
  output = m.column11, error = m.column12, reason = m.column13, problem_at = m.column14,
  dismissed_at = m.column15, warning = m.column16
from (values (?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) m
where {t}run.namespace = m.column1 and {t}run.run_id = m.column2

-- name: leave_queue
delete from {t}queue where namespace = ? and run_id = ?

-- name: all_leave_queue
delete from {t}queue where namespace = ? and run_id in (select value from json_each(?))

-- name: release
-- Gives the run up until due_at, or at once if something woke it meanwhile.
update {t}queue set process_id = null, due_at = case when woken = 1 then min(?3, ?4) else ?3 end,
  woken = 0, is_suspect = ?5
where namespace = ?1 and run_id = ?2

-- name: mark_suspect
update {t}queue set is_suspect = ?3 where namespace = ?1 and run_id = ?2 and is_suspect <> ?3

-- name: wake
update {t}queue set woken = 1, due_at = min(due_at, ?3) where namespace = ?1 and run_id = ?2

-- name: insert_attempt
insert into {t}attempt (namespace, run_id, generation, attempt, started_at, ended_at, outcome, error,
  process_id, failed_steps)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing

-- name: due
select run_id from {t}queue
where namespace = ?1 and process_id is null and due_at <= ?2 and is_suspect = ?3
  and workflow in (select value from json_each(?4))
order by due_at limit ?5

-- name: own
update {t}queue set process_id = ?3, woken = 0
where namespace = ?1 and run_id in (select value from json_each(?2))

-- name: claim_runs
update {t}run set fence = fence + 1, started_at = coalesce(started_at, ?3),
  state = case state when 'cancelling' then 'cancelling' else 'running' end
where namespace = ?1 and run_id in (select value from json_each(?2))

-- name: claimed
select {run}, {event} from {t}run r
join {t}event e on e.namespace = r.namespace and e.source = r.source and e.id = r.event_id
where r.namespace = ? and r.run_id in (select value from json_each(?))

-- name: heartbeat
update {t}process set lease_until = ? where namespace = ? and process_id = ? and epoch = ?

-- name: insert_process
insert into {t}process (namespace, process_id, epoch, instance, host, pid, version, started_at, lease_until)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_committer
insert into {t}committer (namespace, process_id, epoch) values (?, ?, ?)

-- name: unregistered
-- Owners without a row: whoever deletes it by hand would leave their runs to nobody (B013).
select distinct process_id from {t}queue
where namespace = ?1 and process_id is not null
  and process_id not in (select process_id from {t}process where namespace = ?1)

-- name: same_instance
select process_id from {t}process where namespace = ? and instance = ?

-- name: save_workflow
insert into {t}workflow (namespace, name, triggers, seen_at, deadline_ms, rules, retention, tags)
values (?1, ?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, name) do update set triggers = excluded.triggers, seen_at = excluded.seen_at,
  deadline_ms = excluded.deadline_ms, rules = excluded.rules, retention = excluded.retention,
  tags = excluded.tags

-- name: count_registration
insert into {t}registry as old (namespace, registrations) values (?, 1)
on conflict (namespace) do update set registrations = old.registrations + 1

-- name: forget_workflow
delete from {t}workflow where namespace = ? and name = ?

-- name: shut_out
delete from {t}committer where namespace = ? and process_id = ?

-- name: forget_process
delete from {t}process where namespace = ? and process_id = ?

-- name: owned_runs
select {run} from {t}queue q
join {t}run r on r.namespace = q.namespace and r.run_id = q.run_id
where q.namespace = ? and q.process_id = ?

-- name: put_back
-- Runs of a process that leaves: due at once, nothing charged.
update {t}run set state = 'queued' where namespace = ?1 and state = 'running'
  and run_id in (select run_id from {t}queue where namespace = ?1 and process_id = ?2)

-- name: put_back_queue
update {t}queue set process_id = null, due_at = ?3, woken = 0 where namespace = ?1 and process_id = ?2

-- name: lose_run
-- The holder is lost: the next claim is a new attempt, durable before any body starts.
update {t}run set state = ?3, attempt = ?4, crashes = ?5, fence = fence + 1, reason = ?6, problem_at = ?7
where namespace = ?1 and run_id = ?2

-- name: hold_damaged
-- Whatever else the row holds stays for whoever repairs it.
update {t}run set state = 'held', fence = fence + 1, reason = ?3, problem_at = ?4
where namespace = ?1 and run_id = ?2

-- name: steer_run
-- Guarded by what the operator saw.
update {t}run set state = ?6, generation = ?7, attempt = ?8, failures = ?9, crashes = ?10, deadline_at = ?11,
  started_at = ?12, ended_at = ?13, output = ?14, error = ?15, reason = ?16, problem_at = ?17,
  dismissed_at = ?18, warning = ?19, fence = fence + 1, key = coalesce(?20, key)
where namespace = ?1 and run_id = ?2 and state = ?3 and generation = ?4 and fence = ?5

-- name: sum_of_seq
-- Every record that is saved makes it larger. The last number alone does not: a transaction of the
-- user's numbers its record ahead.
select coalesce(sum(seq), 0) from {t}step where namespace = ? and run_id = ? and generation = ?

-- name: requeue
insert into {t}queue (namespace, run_id, workflow, due_at, process_id, woken, is_suspect)
select namespace, run_id, workflow, ?3, null, 0, ?4 from {t}run where namespace = ?1 and run_id = ?2
on conflict (namespace, run_id) do update set due_at = excluded.due_at, process_id = null,
  is_suspect = excluded.is_suspect

-- name: reopen
-- Failures that ended the attempt, and what they cut off, run again with all their tries; a record
-- that backs off goes on at once with those it has left; a sleep keeps its deadline. Every other
-- record stays (RULINGS 19, 23). The copy of a failure becomes a step of this run: it has a key of its
-- own and is undone here, and a call calls a run of its own.
update {t}step set tries = case state when 'open' then tries else 0 end, state = 'open',
  output = null, error = null, ended_at = null, wake_at = case kind when 'sleep' then wake_at end,
  begun = case state when 'failed' then null else begun end,
  child_run_id = case when origin is null then child_run_id end, origin = null,
  started_at = case when origin is null or key_scope = 'business' then started_at else ?7 end
where namespace = ?1 and run_id = ?2 and generation = ?3 and name = ?4 and item = ?5 and ordinal = ?6
  and state in ('failed', 'cut', 'open')

-- name: insert_audit
insert into {t}audit (namespace, run_id, audit_id, at, verb, actor, detail, request_id)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_audit
-- Of what is written by itself; nothing if its request has an entry.
insert into {t}audit (namespace, run_id, audit_id, at, verb, actor, detail, request_id)
values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing

-- name: has_event
select payload is not null from {t}event where namespace = ? and source = ? and id = ?

-- name: replayed
select run_id from {t}run{by_identity}
where namespace = ? and source = ? and source is not null and event_id = ? and workflow = ? and replay_id = ?

-- name: histories
select s.run_id, {step} from {t}step s
join {t}run r on r.namespace = s.namespace and r.run_id = s.run_id and r.generation = s.generation
where s.namespace = ? and s.run_id in (select value from json_each(?))
order by s.run_id, s.seq

-- name: states
select {run} from {t}run r where r.namespace = ? and r.run_id in (select value from json_each(?))

-- name: last_batch
select last_batch from {t}committer where namespace = ? and process_id = ?

-- name: listed
-- Runs by id with what a list shows beside them. The steps are looked at of failed runs alone.
select {run}, e.type, e.subject, q.due_at, q.process_id,
  case when r.state = 'failed' then exists (
    select 1 from {t}step s
    where s.namespace = r.namespace and s.run_id = r.run_id and s.generation = r.generation and s.kind = 'undo'
  ) else 0 end
from {t}run r
left join {t}event e on e.namespace = r.namespace and e.source = r.source and e.id = r.event_id
left join {t}queue q on q.namespace = r.namespace and q.run_id = r.run_id
where r.namespace = ? and r.run_id in (select value from json_each(?))

-- name: look
-- One row. Each part is a few steps in an index, however many runs sleep.
select
  (select min(due_at) from {t}queue
   where namespace = ?1 and process_id is null and workflow in (select value from json_each(?3))),
  (select min(lease_until) from {t}process where namespace = ?1 and process_id <> ?2),
  (select count(*) from {t}queue where namespace = ?1 and process_id = ?2),
  (select group_concat(run_id) from {t}queue{by_owner} where namespace = ?1 and process_id = ?2 and woken = 1),
  (select group_concat(process_id) from {t}process where namespace = ?1 and process_id <> ?2),
  (select group_concat(run_id) from {t}holder{by_replaced} where namespace = ?1 and is_replaced = 1),
  exists (select 1 from {t}outbox where namespace = ?1),
  (select min(due_at) from {t}notice{by_due}
   where namespace = ?1 and due_at is not null and address_id in (select value from json_each(?4))),
  coalesce((select registrations from {t}registry where namespace = ?1), 0)

-- name: forget_posted
delete from {t}outbox where namespace = ? and outbox_id = ?

-- name: give_back
update {t}queue set process_id = null, due_at = ?4 where namespace = ?1 and process_id = ?2 and run_id = ?3

-- name: give_back_run
update {t}run set state = 'queued' where namespace = ?1 and run_id = ?2 and state = 'running'

-- Waits and promises. -----------------------------------------------------------------------------

-- name: open_wait
insert into {t}wait (namespace, run_id, generation, name, item, ordinal, part, type, subject, source, since_at,
  until_at, condition)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, run_id, generation, name, item, ordinal, part) do update set type = excluded.type,
  subject = excluded.subject, source = excluded.source, since_at = excluded.since_at,
  until_at = excluded.until_at, condition = excluded.condition

-- name: end_wait
delete from {t}wait
where namespace = ? and run_id = ? and generation = ? and name = ? and item = ? and ordinal = ?

-- name: take_offer
delete from {t}offer where namespace = ? and run_id = ? and source = ? and event_id = ?

-- name: end_waits
delete from {t}wait where namespace = ? and run_id = ?

-- name: end_offers
delete from {t}offer where namespace = ? and run_id = ?

-- name: any_waits
select 1 from {t}wait where namespace = ? limit 1

-- name: waits_for
select {wait} from {t}wait w{by_type} where w.namespace = ? and w.type = ? and w.subject = ?

-- name: insert_offer
insert into {t}offer (namespace, run_id, source, event_id) values (?, ?, ?, ?) on conflict do nothing

-- name: offers
select o.run_id, {event} from {t}offer o
join {t}event e on e.namespace = o.namespace and e.source = o.source and e.id = o.event_id
where o.namespace = ? and o.run_id in (select value from json_each(?))
order by e.received_at, e.source, e.id

-- name: make_promise
-- Again: a generation that keeps it from an older one of the same run.
insert into {t}promise (namespace, token_hash, run_id, generation, name, item, ordinal, created_at, state,
  expires_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (namespace, token_hash) do update set generation = excluded.generation
where {t}promise.run_id = excluded.run_id and {t}promise.state = 'open'

-- name: promises
select {promise} from {t}promise p where p.namespace = ? and p.token_hash in (select value from json_each(?))

-- name: settle_promise
-- Only while somebody can hear it: of a run that is being cancelled only what its clean-up waits for, or
-- made after its code was told; of one that is being undone, nothing.
update {t}promise set state = ?3, ended_at = ?5, output = ?4
where namespace = ?1 and token_hash = ?2 and state = 'open'
  and (?3 = 'expired' or (
    (expires_at is null or expires_at > ?5)
    and exists (
      select 1 from {t}run r
      where r.namespace = ?1 and r.run_id = {t}promise.run_id and r.generation = {t}promise.generation
        and r.state not in ('completed', 'failed', 'cancelled')
        and (r.state <> 'cancelling' or exists (
          select 1 from {t}step c
          where c.namespace = ?1 and c.run_id = r.run_id and c.generation = r.generation
            and c.state = 'cancelled' and (c.ended_at <= {t}promise.created_at or exists (
              select 1 from {t}step w
              where w.namespace = ?1 and w.run_id = r.run_id and w.generation = r.generation
                and w.name = {t}promise.name || ' result' and w.item = {t}promise.item
                and w.kind = 'promise' and w.state = 'open')))))
    and not exists (
      select 1 from {t}step u
      where u.namespace = ?1 and u.run_id = {t}promise.run_id and u.generation = {t}promise.generation
        and u.name = 'undo everything' and u.item = '' and u.ordinal = 1 and u.kind = 'undo')))
