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

-- name: prune_subject_horizon
-- When the first event about a subject came, and the first that has a run which is not over: that may
-- still wait for events about the subject that came since. Asked once, and not for each page.
select min(e.received_at), min(case when exists (
    select 1 from {t}run r{by_identity} where r.namespace = :namespace and r.source = e.source
      and r.source is not null and r.event_id = e.id
      and (r.ended_at is null or (r.problem_at is not null and r.dismissed_at is null))
  ) then e.received_at end)
from {t}event e{by_subject}
where e.namespace = :namespace and e.subject = :subject and e.subject is not null

-- name: prune_look_subject
select e.received_at, e.source, e.id from {t}event e{by_subject}
where e.namespace = :namespace and e.subject = :subject and e.subject is not null and e.received_at <= :until
  and (e.received_at, e.source, e.id) > (:after_at, :after_source, :after_id)
order by e.received_at, e.source, e.id
limit :limit

-- name: prune_look_emitted
-- What a run emitted and started, under an id that was given as well; what names another subject is
-- about that one.
select e.received_at, e.source, e.id from {t}event e
where e.namespace = :namespace and e.source = :family and e.subject is null
  and (e.source, e.id) > (:after_source, :after_id)
union
select e.received_at, e.source, e.id from {t}run c{by_parent}
join {t}event e on e.namespace = :namespace and e.source = c.source and e.id = c.event_id
where c.namespace = :namespace and c.parent_run_id = :run_id and c.parent_run_id is not null
  and e.subject is null and (e.source, e.id) > (:after_source, :after_id)
order by 2, 3
limit :limit

-- name: prune_runs_of
select r.run_id from {t}run r{by_identity}
where r.namespace = :namespace and r.source = :source and r.source is not null and r.event_id = :id

-- name: prune_full_runs
-- Of these, those that have something to lose; retention leaves errors.
select r.run_id from {t}run r
where r.namespace = :namespace and r.run_id {in_ids}
  and (r.pruned_at is null or r.reason is not null or (r.error is not null and r.error <> :told)
  or exists (
    select 1 from {t}step s where s.namespace = :namespace and s.run_id = r.run_id and s.error <> :told)
  or exists (
    select 1 from {t}attempt a where a.namespace = :namespace and a.run_id = r.run_id and a.error <> :told))

-- name: prune_run_errors
-- That there was one stays: what failed has an error.
update {t}run set reason = null, error = case when error is null then null else :told end
where namespace = :namespace and run_id {in_ids}

-- name: prune_step_errors
update {t}step set error = :told where namespace = :namespace and run_id {in_ids} and error <> :told

-- name: prune_attempt_errors
update {t}attempt set error = :told where namespace = :namespace and run_id {in_ids} and error <> :told

-- name: prune_notice_texts
-- Of one run, by what their ids begin with.
update {t}notice set reason = null, trouble = null, error = case when error is null then null else :told end
where namespace = :namespace and notice_id >= :begin and notice_id < :end

-- name: prune_lock_event
select 1 from {t}event e where e.namespace = :namespace and e.source = :source and e.id = :id{for_update}

-- name: prune_has_payload
select 1 from {t}event e
where e.namespace = :namespace and e.source = :source and e.id = :id and e.payload is not null

-- name: prune_told_of
-- Runs that were told of an event and have not taken it, by what they wait for.
select r.run_id, r.workflow, r.state, r.ended_at, r.problem_at, r.dismissed_at, r.pruned_at
from {t}event e
join {t}wait w{by_type} on w.namespace = :namespace and w.type = e.type and w.type is not null
  and w.subject in ('', coalesce(e.subject, ''))
join {t}offer o on o.namespace = :namespace and o.run_id = w.run_id and o.source = e.source
  and o.event_id = e.id
join {t}run r on r.namespace = :namespace and r.run_id = w.run_id
where e.namespace = :namespace and e.source = :source and e.id = :id

-- name: prune_deliveries_of
select distinct d.delivery_id from {t}delivery d{by_event}
where d.namespace = :namespace and d.source = :source and d.source is not null and d.event_id = :id

-- name: prune_parts_of
select d.part, d.source, d.event_id, d.received_at from {t}delivery d
where d.namespace = :namespace and d.delivery_id = :delivery_id
order by d.source, d.event_id

-- name: prune_taken_of
-- The events that waits of runs took, with a copy of each; of runs about the subject itself they went.
select s.run_id, s.generation, s.name, s.item, s.ordinal, s.output from {t}step s
join {t}run r on r.namespace = :namespace and r.run_id = s.run_id
left join {t}event e on e.namespace = :namespace and e.source = r.source and e.id = r.event_id
where s.namespace = :namespace and s.run_id {in_ids} and s.kind = 'wait' and s.state = 'done'
  and s.output is not null and (e.subject is null or e.subject <> :subject)

-- name: prune_taken
update {t}step set output = :output
where namespace = :namespace and run_id = :run_id and generation = :generation and name = :step_name
  and item = :item and ordinal = :ordinal

-- name: prune_fence
-- Whoever read the run before cannot copy forward what it had.
update {t}run set fence = fence + 1 where namespace = :namespace and run_id {in_ids}
