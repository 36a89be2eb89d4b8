-- Reads that both databases share. Placeholders are :name. A macro {by_...} behind a table names
-- the index on SQLite, which without statistics prefers to walk the primary key through the whole
-- namespace; on PostgreSQL it is empty.

-- name: run
select {run} from {t}run r where r.namespace = :namespace and r.run_id = :run_id

-- name: runs
-- Newest first: run ids grow with time. Optional filters are null.
select {run} from {t}run r
where r.namespace = :namespace
  and (cast(:before as text) is null or r.run_id < :before)
  and (cast(:source as text) is null or r.source = :source)
  and (cast(:event_id as text) is null or r.event_id = :event_id)
  and (cast(:workflow as text) is null or r.workflow = :workflow)
  and (cast(:state as text) is null or r.state = :state)
  and (cast(:key as text) is null or r.key = :key)
order by r.run_id desc
limit :limit

-- name: runs_of_event
-- By the identity index, which is partial: SQLite takes it only where the query says its condition
-- in the same words.
select {run} from {t}run r{by_identity}
where r.namespace = :namespace and r.source = :source and r.source is not null and r.event_id = :event_id
  and (cast(:before as text) is null or r.run_id < :before)
  and (cast(:workflow as text) is null or r.workflow = :workflow)
  and (cast(:state as text) is null or r.state = :state)
  and (cast(:key as text) is null or r.key = :key)
order by r.run_id desc
limit :limit

-- name: problems
-- By the partial index of open problems.
select {run} from {t}run r{by_open}
where r.namespace = :namespace and r.problem_at is not null and r.dismissed_at is null
  and (cast(:before as text) is null or r.run_id < :before)
  and (cast(:source as text) is null or r.source = :source)
  and (cast(:event_id as text) is null or r.event_id = :event_id)
  and (cast(:workflow as text) is null or r.workflow = :workflow)
  and (cast(:state as text) is null or r.state = :state)
  and (cast(:key as text) is null or r.key = :key)
order by r.run_id desc
limit :limit

-- name: runs_of_key
-- By the partial index on key, newest first within it.
select {run} from {t}run r{by_key}
where r.namespace = :namespace and r.key = :key and r.key is not null
  and (cast(:before as text) is null or r.run_id < :before)
  and (cast(:source as text) is null or r.source = :source)
  and (cast(:event_id as text) is null or r.event_id = :event_id)
  and (cast(:workflow as text) is null or r.workflow = :workflow)
  and (cast(:state as text) is null or r.state = :state)
order by r.run_id desc
limit :limit

-- name: children
select {run} from {t}run r{by_parent}
where r.namespace = :namespace and r.parent_run_id = :run_id
order by r.run_id

-- name: event
select {event} from {t}event e where e.namespace = :namespace and e.source = :source and e.id = :event_id

-- name: events
-- Newest first, by (received_at, source, id); the row comparison is one index range. That all were
-- received after 1970 is what its index wants to hear.
select {event} from {t}event e
where e.namespace = :namespace and e.received_at > 0
  and (cast(:before_at as {int}) is null
       or (e.received_at, e.source, e.id) < (cast(:before_at as {int}), :before_source, :before_id))
  and (cast(:source as text) is null or e.source = :source)
  and (cast(:type as text) is null or e.type = :type)
  and (cast(:subject as text) is null or e.subject = :subject)
order by e.received_at desc, e.source desc, e.id desc
limit :limit

-- name: deliveries
select {delivery} from {t}delivery d{by_event}
where d.namespace = :namespace and d.source = :source and d.source is not null and d.event_id = :event_id
order by d.received_at, d.delivery_id, d.part

-- name: delivery
select {delivery} from {t}delivery d
where d.namespace = :namespace and d.delivery_id = :delivery_id
order by d.part

-- name: all_deliveries
-- Newest first: delivery ids grow with time. :before opens the index.
select {delivery_head} from {t}delivery d
where d.namespace = :namespace and d.delivery_id < :before
order by d.delivery_id desc, d.part
limit :limit

-- name: surplus
select s.count from {t}surplus s
where s.namespace = :namespace and s.source = :source and s.event_id = :event_id

-- name: same_body
select e.id from {t}event e{by_body}
where e.namespace = :namespace and e.source = :source and e.content_hash = :content_hash
  and e.id_is_signed = 0
order by e.received_at, e.id
limit :limit

-- name: unparsed_delivery
select {unparsed} from {t}unparsed u where u.namespace = :namespace and u.delivery_id = :delivery_id

-- name: refusals
select {refusal} from {t}refusal f
where f.namespace = :namespace and (cast(:source as text) is null or f.source = :source)
order by f.last_at desc, f.source, f.reason

-- name: skipped
select {skip} from {t}skipped s
where s.namespace = :namespace and s.source = :source and s.event_id = :event_id
order by s.workflow

-- name: holder
select h.run_id from {t}holder h
where h.namespace = :namespace and h.workflow = :workflow and h.key = :key and h.run_id <> ''

-- name: steps
select {step} from {t}step s
where s.namespace = :namespace and s.run_id = :run_id and s.generation = :generation
order by s.seq

-- name: generation
select r.generation from {t}run r where r.namespace = :namespace and r.run_id = :run_id

-- name: attempts
select {attempt} from {t}attempt a
where a.namespace = :namespace and a.run_id = :run_id
order by a.generation, a.attempt

-- name: audits
select {audit} from {t}audit a
where a.namespace = :namespace and a.run_id = :run_id
order by a.audit_id

-- name: registrations
select coalesce((select registrations from {t}registry where namespace = :namespace), 0)

-- name: workflows
select {workflow} from {t}workflow w where w.namespace = :namespace order by w.name

-- name: processes
select {process} from {t}process p where p.namespace = :namespace order by p.process_id

-- name: owned
select q.run_id, q.woken, r.fence
from {t}queue q{by_owner} join {t}run r on r.namespace = q.namespace and r.run_id = q.run_id
where q.namespace = :namespace and q.process_id = :process_id

-- name: step
select {step} from {t}step s
where s.namespace = :namespace and s.run_id = :run_id and s.generation = :generation and s.name = :step_name
  and s.item = :item and s.ordinal = :ordinal

-- name: outbox
select {outbox} from {t}outbox o where o.namespace = :namespace order by o.outbox_id limit :limit

-- name: awaited_about
-- Events about one subject, oldest first, from the start of a run on.
select {event} from {t}event e{by_subject}
where e.namespace = :namespace and e.subject = :subject and e.received_at >= :since and e.type = :type
  and (cast(:until as {int}) is null or e.received_at <= cast(:until as {int}))
  and (cast(:after_at as {int}) is null
       or (e.received_at, e.source, e.id) > (cast(:after_at as {int}), :after_source, :after_id))
order by e.received_at, e.source, e.id
limit :limit

-- name: awaited_any
-- The same about whatever: by time alone.
select {event} from {t}event e{by_received}
where e.namespace = :namespace and e.received_at > 0 and e.received_at >= :since and e.type = :type
  and (cast(:until as {int}) is null or e.received_at <= cast(:until as {int}))
  and (cast(:after_at as {int}) is null
       or (e.received_at, e.source, e.id) > (cast(:after_at as {int}), :after_source, :after_id))
order by e.received_at, e.source, e.id
limit :limit

-- name: waits_of
-- What a run waits for, by the primary key.
select {wait} from {t}wait w
where w.namespace = :namespace and w.run_id = :run_id
order by w.generation, w.name, w.item, w.ordinal, w.part
