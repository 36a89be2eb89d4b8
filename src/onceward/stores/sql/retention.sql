-- What prunes, for both databases. Each statement reaches at most a page of rows, found by a key that
-- grows with time, and none looks for a state: what has ended is told from the rows of the page.

-- name: prune_horizon
-- When the oldest event came that a run which is not over began with: such a run may still wait for any
-- event since then. By the ends of indexes; replays, which inherit an old window, have one of their own.
select min(w.received_at) from (
  select r.source, r.event_id from {t}run r where r.namespace = :namespace and r.run_id = (
    select q.run_id from {t}queue q where q.namespace = :namespace order by q.run_id limit 1)
  union all
  select * from (
    select r.source, r.event_id from {t}run r{by_open}
    where r.namespace = :namespace and r.problem_at is not null and r.dismissed_at is null
    order by r.run_id limit 1) o
  union all
  select * from (
    select r.source, r.event_id from {t}run r{by_problem}
    where r.namespace = :namespace and r.problem_at is not null and r.state = 'held'
    order by r.run_id limit 1) h
  union all
  select r.source, r.event_id from {t}run r{by_replay}
  where r.namespace = :namespace and r.replay_of is not null
    and (r.ended_at is null or (r.problem_at is not null and r.dismissed_at is null))
) f join {t}event w on w.namespace = :namespace and w.source = f.source and w.id = f.event_id

-- name: prune_look_runs
select r.run_id, r.workflow, r.state, r.ended_at, r.problem_at, r.dismissed_at, r.pruned_at from {t}run r
where r.namespace = :namespace and r.run_id > :after and r.run_id < :before
order by r.run_id
limit :limit

-- name: prune_lock_runs
-- Again, locked: an operator who steers one of them meanwhile comes before or after.
select r.run_id, r.workflow, r.state, r.ended_at, r.problem_at, r.dismissed_at, r.pruned_at from {t}run r
where r.namespace = :namespace and r.run_id {in_ids}
order by r.run_id{for_update}

-- name: prune_free_runs
-- Those that nobody needs: no parent that may still ask for their result, no child under way.
select r.run_id from {t}run r
where r.namespace = :namespace and r.run_id {in_ids}
  and not exists (
    select 1 from {t}run p where p.namespace = :namespace and p.run_id = r.parent_run_id
      and p.pruned_at is null and p.state not in ('completed', 'cancelled'))
  and not exists (
    select 1 from {t}run c{by_parent} where c.namespace = :namespace and c.parent_run_id = r.run_id
      and (c.ended_at is null or (c.problem_at is not null and c.dismissed_at is null)))

-- name: prune_idle_runs
-- Of these, those whose rows may go: no key remembers them, their event has its payload no more unless
-- a run beside them keeps it, and no run of the same event is under way.
select r.run_id from {t}run r
where r.namespace = :namespace and r.run_id {in_ids}
  and not exists (
    select 1 from {t}holder h where h.namespace = :namespace and h.workflow = r.workflow and h.key = r.key
      and h.run_id = r.run_id)
  and not exists (
    select 1 from {t}run s{by_identity} where s.namespace = :namespace and s.source = r.source
      and s.source is not null and s.event_id = r.event_id
      and (s.ended_at is null or (s.problem_at is not null and s.dismissed_at is null)))
  and (exists (
    select 1 from {t}event e where e.namespace = :namespace and e.source = r.source and e.id = r.event_id
      and e.payload is null)
  or exists (
    select 1 from {t}run s{by_identity} where s.namespace = :namespace and s.source = r.source
      and s.source is not null and s.event_id = r.event_id and s.pruned_at is null))

-- name: prune_run_values
-- The fence grows, so that whoever read the run before cannot bring it back.
update {t}run set output = null, input = null, pruned_at = :now, fence = fence + 1
where namespace = :namespace and run_id {in_ids}

-- name: prune_step_values
update {t}step set output = null, begun = null
where namespace = :namespace and run_id {in_ids} and (output is not null or begun is not null)

-- name: prune_promise_values
update {t}promise set output = null where namespace = :namespace and run_id {in_ids} and output is not null

-- name: prune_steps
delete from {t}step where namespace = :namespace and run_id {in_ids}

-- name: prune_attempts
delete from {t}attempt where namespace = :namespace and run_id {in_ids}

-- name: prune_promises
delete from {t}promise where namespace = :namespace and run_id {in_ids}

-- name: prune_offers
delete from {t}offer where namespace = :namespace and run_id {in_ids}

-- name: prune_runs
delete from {t}run where namespace = :namespace and run_id {in_ids}

-- name: prune_look_events
select e.received_at, e.source, e.id from {t}event e{by_received}
where e.namespace = :namespace and e.received_at > 0 and e.received_at < :before
  and (e.received_at, e.source, e.id) > (:after_at, :after_source, :after_id)
order by e.received_at, e.source, e.id
limit :limit

-- name: prune_lock_events
-- A replay locks its event as well: it comes before, and its run is seen below, or after, and is refused.
select 1 from {t}event e{by_received}
where e.namespace = :namespace and e.received_at > 0 and e.received_at < :before
  and (e.received_at, e.source, e.id) > (:after_at, :after_source, :after_id)
  and (e.received_at, e.source, e.id) <= (:last_at, :last_source, :last_id)
order by e.received_at, e.source, e.id{for_update}

-- name: prune_free_events
select e.source, e.id from {t}event e{by_received}
where e.namespace = :namespace and e.received_at > 0 and e.received_at < :before
  and (e.received_at, e.source, e.id) > (:after_at, :after_source, :after_id)
  and (e.received_at, e.source, e.id) <= (:last_at, :last_source, :last_id)
  and e.payload is not null
  and not exists (
    select 1 from {t}run r{by_identity} where r.namespace = :namespace and r.source = e.source
      and r.source is not null and r.event_id = e.id and r.pruned_at is null)
  and (e.received_at < :alone_before or exists (
    select 1 from {t}run r{by_identity} where r.namespace = :namespace and r.source = e.source
      and r.source is not null and r.event_id = e.id))

-- name: prune_event_payload
update {t}event set payload = null where namespace = :namespace and source = :source and id = :id

-- name: prune_gone_events
select e.source, e.id from {t}event e{by_received}
where e.namespace = :namespace and e.received_at > 0 and e.received_at < :before
  and (e.received_at, e.source, e.id) > (:after_at, :after_source, :after_id)
  and (e.received_at, e.source, e.id) <= (:last_at, :last_source, :last_id)
  and not exists (
    select 1 from {t}run r{by_identity} where r.namespace = :namespace and r.source = e.source
      and r.source is not null and r.event_id = e.id)
  and not exists (
    select 1 from {t}delivery d{by_event} where d.namespace = :namespace and d.source = e.source
      and d.source is not null and d.event_id = e.id)
  and not exists (
    select 1 from {t}skipped s where s.namespace = :namespace and s.source = e.source and s.event_id = e.id
      and s.parent_run_id is not null)

-- name: prune_event
delete from {t}event where namespace = :namespace and source = :source and id = :id

-- name: prune_surplus
delete from {t}surplus where namespace = :namespace and source = :source and event_id = :id

-- name: prune_skipped
delete from {t}skipped where namespace = :namespace and source = :source and event_id = :id

-- name: prune_look_deliveries
select d.delivery_id, d.part, d.source, d.event_id, d.received_at from {t}delivery d
where d.namespace = :namespace and d.delivery_id > :after and d.delivery_id < :before
order by d.delivery_id, d.part
limit :limit

-- name: prune_delivery
-- One row, or another process was here first.
delete from {t}delivery where namespace = :namespace and delivery_id = :delivery_id and part = :part
returning 1

-- name: prune_count_delivery
-- It stays counted.
insert into {t}surplus (namespace, source, event_id, count, last_at)
values (:namespace, :source, :event_id, 1, :at)
on conflict (namespace, source, event_id) do update set count = {t}surplus.count + 1

-- name: prune_look_unparsed
select u.delivery_id, u.last_at from {t}unparsed u
where u.namespace = :namespace and u.delivery_id is not null and u.delivery_id > :after
  and u.delivery_id < :before
order by u.delivery_id
limit :limit

-- name: prune_unparsed
delete from {t}unparsed where namespace = :namespace and delivery_id is not null
  and delivery_id {in_ids} and last_at < :last_before
