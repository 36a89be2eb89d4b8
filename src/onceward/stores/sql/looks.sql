-- For a console: lists that are filtered by columns in no index look at so many rows, and say where they
-- stopped (is_edge), so that no question reads a million. What is listed is read by `listed`. The events
-- and runs beside them are asked for one by one, by a select and not by exists: of that PostgreSQL may make
-- a hash of the whole table, 600 ms at 200,000.

-- part: in_window
-- Since when, and before which run of the page before.
r.namespace = :namespace and r.run_id < :before and r.run_id >= :since
    and r.created_at >= :created_since and r.created_at < :created_until

-- part: all_looked_at
r.run_id, r.workflow, r.state, r.source, r.event_id, r.problem_at, r.dismissed_at, r.parent_run_id,
    r.key, r.error, r.reason

-- part: failure_looked_at
-- Long texts are read only where something is looked for in them: 100 ms at 10,000 on SQLite.
r.run_id, r.workflow, r.state, r.source, r.event_id,
    case when cast(:error as text) is not null then r.error end as error,
    case when cast(:error as text) is not null then r.reason end as reason

-- part: is_meant
-- What a filter says that every look can have; the list :ids names the workflows that a tag stands for.
(cast(:workflow as text) is null or l.workflow = :workflow)
    and (cast(:ids as text) is null or l.workflow {in_ids})
    and (cast(:state as text) is null or l.state = :state)
    and (cast(:source as text) is null or l.source = :source)
    and (cast(:event_id as text) is null or l.event_id = :event_id)
    and ((cast(:type as text) is null and cast(:subject as text) is null) or (
      select 1 from {t}event e where e.namespace = :namespace and e.source = l.source and e.id = l.event_id
        and (cast(:type as text) is null or e.type = :type)
        and (cast(:subject as text) is null or e.subject = :subject)
      limit 1) is not null)

-- part: is_error_meant
(cast(:error as text) is null
         or lower(coalesce(l.error, '') || ' ' || coalesce(l.reason, '')) like '%' || cast(:error as text) || '%')

-- part: page_and_edge
order by l.run_id desc
  limit :limit
) f
union all
select edge.run_id, 1 from (select min(run_id) as run_id, count(*) as seen from looked) edge where edge.seen >= :look

-- part: found_runs
-- Of those looked at: the ones that are meant, and where the look stopped.
select * from (
  select l.run_id, 0 as is_edge from looked l
  where {is_meant}
  {page_and_edge}

-- part: found_runs_by_error
select * from (
  select l.run_id, 0 as is_edge from looked l
  where {is_meant}
    and {is_error_meant}
  {page_and_edge}

-- part: found_runs_by_all
select * from (
  select l.run_id, 0 as is_edge from looked l
  where {is_meant}
    and (cast(:problems as {int}) = 0 or (l.problem_at is not null and l.dismissed_at is null))
    and (cast(:parent as text) is null or l.parent_run_id = :parent)
    and (cast(:key as text) is null or l.key = :key)
    and {is_error_meant}
  {page_and_edge}

-- part: found_events
select * from (
  select l.*, 0 as is_edge from looked l
  where (cast(:source as text) is null or l.source = :source)
    and (cast(:id as text) is null or l.id = :id)
    and (cast(:type as text) is null or l.type = :type)
    and (cast(:subject as text) is null or l.subject = :subject)
    and (cast(:without_runs as {int}) = 0 or (
      select 1 from {t}run r{by_identity}
      where r.namespace = :namespace and r.source = l.source and r.source is not null and r.event_id = l.id
      limit 1) is null)
  order by l.received_at desc, l.source desc, l.id desc
  limit :limit
) f
union all
select * from (
  select l.*, 1 from looked l where (select count(*) from looked) >= :look
  order by l.received_at, l.source, l.id
  limit 1
) edge

-- name: look_runs
-- Newest first, by the primary key.
with looked as (
  select r.run_id, r.workflow, r.state, r.source, r.event_id from {t}run r
  where {in_window}
  order by r.run_id desc
  limit :look
)
{found_runs}

-- name: look_runs_of_event
-- Of one event, by the identity index.
with looked as (
  select {all_looked_at}
  from {t}run r{by_identity}
  where {in_window}
    and r.source = :source and r.source is not null and r.event_id = :event_id
  order by r.run_id desc
  limit :look
)
{found_runs_by_all}

-- name: look_runs_of_key
-- Of one key, by its partial index.
with looked as (
  select {all_looked_at}
  from {t}run r{by_key}
  where {in_window}
    and r.key = :key and r.key is not null
  order by r.run_id desc
  limit :look
)
{found_runs_by_all}

-- name: look_runs_of_subject
-- Of events about one thing, if there are no more of them than are looked at; see `count_of_subject`.
with looked as (
  select {all_looked_at}
  from (
    select e.source, e.id from {t}event e{by_subject}
    where e.namespace = :namespace and e.subject = :subject and e.subject is not null
    limit :look
  ) about
  join {t}run r{by_identity}
    on r.namespace = :namespace and r.source = about.source and r.source is not null and r.event_id = about.id
  where r.run_id < :before and r.run_id >= :since
    and r.created_at >= :created_since and r.created_at < :created_until
  order by r.run_id desc
  limit :look
)
{found_runs_by_all}

-- name: count_of_subject
select count(*) from (
  select 1 as one from {t}event e{by_subject}
  where e.namespace = :namespace and e.subject = :subject and e.subject is not null
  limit :limit
) counted

-- name: look_children
-- What a run started or called.
with looked as (
  select {all_looked_at}
  from {t}run r{by_parent}
  where {in_window}
    and r.parent_run_id = :parent and r.parent_run_id is not null
  order by r.run_id desc
  limit :look
)
{found_runs_by_all}

-- name: look_problems
-- Failed and held ones that nobody dismissed. Their long texts are read only where something is looked for
-- in them: 100 ms at 10,000 on SQLite.
with looked as (
  select {failure_looked_at}
  from {t}run r{by_open}
  where {in_window}
    and r.problem_at is not null and r.dismissed_at is null
  order by r.run_id desc
  limit :look
)
{found_runs_by_error}

-- name: look_failures
-- All failed and held ones; likewise.
with looked as (
  select {failure_looked_at}
  from {t}run r{by_problem}
  where {in_window}
    and r.problem_at is not null
  order by r.run_id desc
  limit :look
)
{found_runs_by_error}

-- name: look_live
-- Those that are not over, held ones aside: they stand in the queue, beside however many that are over.
with looked as (
  select q.run_id, r.workflow, r.state, r.source, r.event_id from {t}queue q
  join {t}run r on r.namespace = :namespace and r.run_id = q.run_id
  where q.namespace = :namespace and q.run_id < :before and q.run_id >= :since
    and r.created_at >= :created_since and r.created_at < :created_until
  order by q.run_id desc
  limit :look
)
{found_runs}

-- name: look_events
-- Newest first; likewise.
with looked as (
  select e.source, e.id, e.type, e.received_at, e.subject, e.occurred_at from {t}event e
  where e.namespace = :namespace and e.received_at > 0 and e.received_at >= :since
    and (e.received_at, e.source, e.id) < (:before_at, :before_source, :before_id)
  order by e.received_at desc, e.source desc, e.id desc
  limit :look
)
{found_events}

-- name: look_events_of_subject
-- Likewise, by the partial index on the subject.
with looked as (
  select e.source, e.id, e.type, e.received_at, e.subject, e.occurred_at from {t}event e{by_subject}
  where e.namespace = :namespace and e.subject = :subject and e.subject is not null and e.received_at > 0 and e.received_at >= :since
    and (e.received_at, e.source, e.id) < (:before_at, :before_source, :before_id)
  order by e.received_at desc, e.source desc, e.id desc
  limit :look
)
{found_events}

-- name: tally_queue
-- How many runs stand in which live state: of those that somebody holds, that are due and that are not
-- yet due, so many at most are counted.
select r.state, q.share, count(*) from (
  select * from (
    select run_id, 0 as share from {t}queue where namespace = :namespace and process_id is not null limit :limit
  ) owned
  union all
  select * from (
    select run_id, 1 from {t}queue
    where namespace = :namespace and process_id is null and due_at <= :now limit :limit
  ) due
  union all
  select * from (
    select run_id, 2 from {t}queue
    where namespace = :namespace and process_id is null and due_at > :now limit :limit
  ) later
) q
join {t}run r on r.namespace = :namespace and r.run_id = q.run_id
group by r.state, q.share

-- name: tally_problems
select p.state, count(*) from (
  select r.state from {t}run r{by_open}
  where r.namespace = :namespace and r.problem_at is not null and r.dismissed_at is null
  limit :limit
) p
group by p.state

-- name: late_runs
-- How many runs of each workflow are due since then and held by nobody: of those that are due longest, so many.
select q.workflow, count(*) from (
  select workflow from {t}queue
  where namespace = :namespace and process_id is null and due_at <= :due_before
  order by due_at limit :limit
) q
group by q.workflow

-- name: oldest_due
select min(q.due_at) from {t}queue q where q.namespace = :namespace and q.process_id is null

-- name: count_unparsed
select count(*) from (
  select 1 as one from {t}unparsed u where u.namespace = :namespace limit :limit
) counted

-- name: owned_counts
select q.process_id, count(*) from {t}queue q{by_owner}
where q.namespace = :namespace and q.process_id is not null
group by q.process_id

-- name: live_runs
-- Those that somebody holds, and those that wait, the longest due first.
select * from (
  select q.run_id from {t}queue q{by_owner}
  where q.namespace = :namespace and q.process_id is not null limit :limit
) owned
union all
select * from (
  select q.run_id from {t}queue q
  where q.namespace = :namespace and q.process_id is null order by q.due_at limit :limit
) waiting

-- name: recent_runs
select r.state, r.created_at, r.started_at, r.ended_at from {t}run r
where r.namespace = :namespace and r.run_id >= :since
order by r.run_id desc
limit :limit

-- name: recent_events
select e.received_at from {t}event e
where e.namespace = :namespace and e.received_at > 0 and e.received_at >= :since
order by e.received_at desc
limit :limit

-- name: all_audits
select {audit} from {t}audit a{by_audit_time}
where a.namespace = :namespace and a.at > 0 and (a.at, a.audit_id) < (:before_at, :before_id)
order by a.at desc, a.audit_id desc
limit :limit

-- name: audit_of_request
select {audit} from {t}audit a{by_audit_request}
where a.namespace = :namespace and a.request_id = :request_id and a.request_id is not null

-- name: look_deliveries
-- Those of a source or an outcome, newest first, by looking at so many; the last row says where it stopped,
-- and with is_edge 2 that all of them were parts of one delivery.
with looked as (
  select d.delivery_id, d.part, d.source, d.outcome from {t}delivery d
  where d.namespace = :namespace and d.delivery_id < :before
  order by d.delivery_id desc, d.part desc
  limit :look
), found as (
  select * from (
    select l.delivery_id, l.part, 0 as is_edge from looked l
    where (cast(:source as text) is null or l.source = :source)
      and (cast(:outcome as text) is null or l.outcome = :outcome)
    order by l.delivery_id desc, l.part desc
    limit :limit
  ) f
  union all
  select edge.first_id, -1, case when edge.first_id = edge.last_id then 2 else 1 end from (
    select min(delivery_id) as first_id, max(delivery_id) as last_id, count(*) as seen from looked
  ) edge where edge.seen >= :look
)
select found.is_edge, found.delivery_id, {delivery_head} from found
left join {t}delivery d on d.namespace = :namespace and d.delivery_id = found.delivery_id and d.part = found.part

-- name: look_unparsed
-- Likewise, of those that could not be read, by the index of their ids; none of them has parts.
with looked as (
  select u.delivery_id, u.source from {t}unparsed u
  where u.namespace = :namespace and u.delivery_id < :before
  order by u.delivery_id desc
  limit :look
), found as (
  select * from (
    select l.delivery_id, 0 as is_edge from looked l
    where (cast(:source as text) is null or l.source = :source)
    order by l.delivery_id desc
    limit :limit
  ) f
  union all
  select edge.first_id, 1 from (
    select min(delivery_id) as first_id, count(*) as seen from looked
  ) edge where edge.seen >= :look
)
select found.is_edge, found.delivery_id, {unparsed_head} from found
left join {t}unparsed u on u.namespace = :namespace and u.delivery_id = found.delivery_id and found.is_edge = 0

-- name: recent_deliveries
select d.source, d.received_at, d.sent_at from {t}delivery d
where d.namespace = :namespace
order by d.delivery_id desc
limit :limit
