-- Upkeep of the PostgreSQL store: migrations, what the schema looks like, how durable a commit is.

-- name: has_schema
select 1 from pg_catalog.pg_namespace where nspname = $1

-- name: has_version_table
select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = 'migration'

-- name: create_schema
create schema if not exists {schema}

-- name: unbind
-- Some versions lack one of them.
select set_config(name, '0', true) from pg_catalog.pg_settings
where name in ('lock_timeout', 'statement_timeout', 'transaction_timeout')

-- name: lock
-- Readers go on; other migrators wait.
lock table {t}migration in exclusive mode

-- name: applied
select version, name, checksum from {t}migration

-- name: tables
select 'table', c.relname, coalesce(c.reloptions::text, '') from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relkind = 'r' order by c.relname

-- name: columns
select 'column', c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
  coalesce(l.collname, ''), coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '')
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid and c.relkind = 'r'
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join pg_catalog.pg_collation l on l.oid = a.attcollation
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where n.nspname = $1 and a.attnum > 0 and not a.attisdropped
order by c.relname, a.attnum

-- name: constraints
select 'constraint', c.relname, k.conname, pg_catalog.pg_get_constraintdef(k.oid)
from pg_catalog.pg_constraint k
join pg_catalog.pg_class c on c.oid = k.conrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 order by c.relname, k.conname

-- name: indexes
select 'index', i.tablename, i.indexname, i.indexdef from pg_catalog.pg_indexes i
where i.schemaname = $1 order by i.tablename, i.indexname

-- name: durability
select pg_catalog.current_setting('fsync'), pg_catalog.current_setting('synchronous_commit'),
  pg_catalog.current_setting('full_page_writes'), pg_catalog.current_setting('synchronous_standby_names')
