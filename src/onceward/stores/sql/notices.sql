-- Notices; both databases share it.

-- name: add_notices
-- In the transaction in which the runs failed or were held. Whose fence was lost, or who does it
-- again, writes nothing: the id names the fence, which grows whenever a run goes on. Two days without
-- a word of it (172,800,000 ms): no process has that address any more.
insert into {t}notice (namespace, notice_id, address_id, type, at, state, due_at, tries, run_id, workflow,
  source, event_id, event_type, key, generation, attempt, reason, error)
select r.namespace, 'ntc_' || substr(r.run_id, 5) || '_' || cast(r.fence as text), a.address_id,
  'run.' || r.state, r.problem_at, 'owed', r.problem_at, 0, r.run_id, r.workflow, r.source, r.event_id,
  e.type, r.key, r.generation, r.attempt, r.reason, r.error
from {t}run r
join {t}notice_address a on a.namespace = r.namespace
left join {t}event e on e.namespace = r.namespace and e.source = r.source and e.id = r.event_id
where r.namespace = :namespace and r.run_id {in_ids} and r.state in ('failed', 'held')
  and r.problem_at is not null and r.dismissed_at is null
  and a.off_at is null and a.seen_at > r.problem_at - 172800000 and a.kinds like '%' || r.state || '%'
on conflict (namespace, notice_id, address_id) do nothing

-- name: know_address
insert into {t}notice_address (namespace, address_id, shown, kinds, seen_at)
values (:namespace, :address_id, :shown, :kinds, :seen_at)
on conflict (namespace, address_id) do update set shown = excluded.shown, kinds = excluded.kinds,
  seen_at = excluded.seen_at

-- name: turn_on_address
update {t}notice_address set off_at = null where namespace = :namespace and address_id = :address_id

-- name: turn_off_address
update {t}notice_address set off_at = :now
where namespace = :namespace and address_id = :address_id and off_at is null

-- name: forget_addresses
-- Of which nothing was heard for so long that nothing is written for them any more.
delete from {t}notice_address where namespace = :namespace and seen_at < :before

-- name: notice_addresses
select {notice_address} from {t}notice_address a where a.namespace = :namespace order by a.shown, a.address_id

-- name: due_notices
select n.notice_id, n.address_id from {t}notice n{by_due}
where n.namespace = :namespace and n.due_at is not null and n.due_at <= :now and n.address_id {in_ids}
order by n.due_at limit :limit

-- name: take_notice
-- Whoever comes second finds it due later.
update {t}notice set due_at = :until, tries = tries + 1
where namespace = :namespace and notice_id = :notice_id and address_id = :address_id
  and due_at is not null and due_at <= :now
returning {notice_bare}

-- name: put_off_notice
-- Save where another process has taken it since.
update {t}notice set due_at = :due_at, trouble = :trouble
where namespace = :namespace and notice_id = :notice_id and address_id = :address_id and state = 'owed'
  and tries = :tries

-- name: end_notice
update {t}notice set state = :state, due_at = null, ended_at = :now, trouble = :trouble
where namespace = :namespace and notice_id = :notice_id and address_id = :address_id and state = 'owed'

-- name: give_up_notices_of
update {t}notice set state = 'given_up', due_at = null, ended_at = :now, trouble = :trouble
where namespace = :namespace and due_at is not null and address_id = :address_id
returning 1

-- name: give_up_old_notices
update {t}notice set state = 'given_up', due_at = null, ended_at = :now, trouble = :trouble
where namespace = :namespace and due_at is not null and at < :before
returning 1

-- name: notices
select {notice} from {t}notice n{by_notice_time} where n.namespace = :namespace and n.at > 0
order by n.at desc, n.notice_id desc, n.address_id limit :limit

-- name: prune_look_notices
select n.at, n.notice_id, n.address_id, n.ended_at from {t}notice n{by_notice_time}
where n.namespace = :namespace and n.at > 0 and n.at < :before
  and (n.at, n.notice_id, n.address_id) > (:after_at, :after_id, :after_address)
order by n.at, n.notice_id, n.address_id limit :limit

-- name: prune_notice
delete from {t}notice
where namespace = :namespace and notice_id = :notice_id and address_id = :address_id and due_at is null
returning 1
