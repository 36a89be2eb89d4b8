-- Who may come in; both databases share it. A change and its audit entry are one transaction.

-- name: credential
select {credential} from {t}credential c
where c.namespace = :namespace and c.kind = :kind and c.id = :id

-- name: credentials
select {credential} from {t}credential c where c.namespace = :namespace order by c.kind, c.id

-- name: add_credential
-- The same secret again is this very call, whose reply was lost: secrets are random or salted.
insert into {t}credential as c
  (namespace, kind, id, name, role, secret, created_at, expires_at, used_at)
values (:namespace, :kind, :id, :name, :role, :secret, :created_at, :expires_at, :used_at)
on conflict (namespace, kind, id) do update set used_at = c.used_at where c.secret = excluded.secret
returning id

-- name: change_credential
update {t}credential set secret = :secret, role = :role
where namespace = :namespace and kind = :kind and id = :id
returning id

-- name: drop_credential
delete from {t}credential where namespace = :namespace and kind = :kind and id = :id returning id

-- name: touch_credential
update {t}credential set used_at = :now where namespace = :namespace and kind = :kind and id = :id

-- name: session
select {session} from {t}session s where s.namespace = :namespace and s.id = :id

-- name: add_session
insert into {t}session (namespace, id, name, csrf, created_at, used_at)
values (:namespace, :id, :name, :csrf, :created_at, :used_at)
on conflict (namespace, id) do nothing

-- name: touch_session
update {t}session set used_at = :now where namespace = :namespace and id = :id

-- name: drop_session
delete from {t}session where namespace = :namespace and id = :id returning id

-- name: drop_user_sessions
delete from {t}session where namespace = :namespace and name = :id

-- name: drop_old_sessions
delete from {t}session
where namespace = :namespace and (used_at < :unused_since or created_at < :made_before)

-- name: note_audit
insert into {t}audit (namespace, run_id, audit_id, at, verb, actor, detail, request_id)
values (:namespace, :run_id, :audit_id, :at, :verb, :actor, :detail, :request_id)
on conflict (namespace, run_id, audit_id) do nothing
returning audit_id

-- name: has_audit
select 1 from {t}audit where namespace = :namespace and run_id = :run_id and audit_id = :audit_id
