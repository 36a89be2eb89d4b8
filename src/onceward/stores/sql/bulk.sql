-- How far bulk actions have come; both databases share it.

-- name: bulk
-- As it was last told.
select {bulk} from {t}bulk b where b.namespace = :namespace and b.bulk_id = :bulk_id

-- name: take_bulk
-- The first one has it, until it is over or silent; again by the same teller is this very call, whose reply
-- was lost.
insert into {t}bulk as b (namespace, bulk_id, teller, begun_at, told_at, is_over, actor, asked, reply)
values (:namespace, :bulk_id, :teller, :begun_at, :told_at, :is_over, :actor, :asked, :reply)
on conflict (namespace, bulk_id) do update
set teller = excluded.teller, told_at = excluded.told_at, is_over = excluded.is_over, actor = excluded.actor,
  reply = excluded.reply
where b.is_over = 1 or b.told_at < :silent_before or b.teller = excluded.teller
returning bulk_id

-- name: tell_bulk
-- Only by whoever is at it. It is called every second or so, and rewrites the runs beside it: 10,000 take 400 kB.
update {t}bulk set told_at = :told_at, is_over = :is_over, reply = :reply
where namespace = :namespace and bulk_id = :bulk_id and teller = :teller
returning bulk_id

-- name: bulk_runs
-- Apart from the row, which everybody who looks on reads again and again.
select b.runs from {t}bulk b where b.namespace = :namespace and b.bulk_id = :bulk_id

-- name: choose_bulk
-- Once, by whoever is at it; the same again is this very call, whose reply was lost.
update {t}bulk set runs = :runs
where namespace = :namespace and bulk_id = :bulk_id and teller = :teller and (runs is null or runs = :runs)
returning bulk_id

-- name: drop_old_bulks
-- The audit says how they ended.
delete from {t}bulk where namespace = :namespace and told_at < :before
