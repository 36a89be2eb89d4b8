-- The first schema. One text for both databases; mechanical differences are macros:
--   {t}      prefix of our tables: a schema on PostgreSQL, onceward_ on SQLite
--   {key}    text that is compared byte by byte: text collate "C" / text
--   {int}    a 64-bit integer: bigint / integer
--   {small}  a 32-bit integer: integer / integer. What counts, and flags
--   {bytes}  bytea / blob
--   {packed} clustered by its key on SQLite (without rowid), nothing on PostgreSQL
--   {hot}    room for updates in place on PostgreSQL (fillfactor), nothing on SQLite
--   {if_...} makes an index partial on PostgreSQL though it has every row, so that only queries
--            that name the condition use it: on an empty table its planner takes any index with
--            the namespace for a look-up by key. Nothing on SQLite, which knows that a column is
--            not null and then does not find the condition in any query
--   {is_run_state}, {is_step_state}, {is_promise_state}, {is_notice_state}, {is_skip}  that the state or the reason is one there is
-- Numbers come before texts where rows are many: behind a text PostgreSQL pads each of them.
-- Every key starts with the namespace. Times are Unix milliseconds, JSON is text that the
-- database never looks into.

-- An immutable fact. On SQLite deliberately not clustered: senders' ids are random, and a
-- random key would touch one big page per event instead of one small index page.
create table {t}event (
    occurred_at {int},
    received_at {int} not null,
    namespace {key} not null,
    source {key} not null,
    id {key} not null,
    type {key} not null,
    subject {key},
    payload text,
    content_hash {key},
    id_is_signed {small} not null,
    trace {key},
    primary key (namespace, source, id)
);
create index {i}event_received on {t}event (namespace, received_at){if_received};
-- "Same body, new id": asked only of events whose id is not signed, and paid only for them.
create index {i}event_body on {t}event (namespace, source, content_hash) where id_is_signed = 0;

-- One HTTP request that carried an event; with several events it has a row for each, its parts.
-- Delivery ids grow with time, so that rows are appended. The body is in the first part; null
-- there means that the event's payload is the body. Not "outcome in (...)": SQLite would build that
-- list anew for each row.
create table {t}delivery (
    received_at {int} not null,
    sent_at {int},
    part {small} not null,
    secret_index {small},
    namespace {key} not null,
    delivery_id {key} not null,
    source {key} not null,
    event_id {key} not null,
    outcome {key} not null check (outcome = 'accepted' or outcome = 'duplicate' or outcome = 'clash'),
    content_hash {key} not null,
    request text,
    body {bytes},
    primary key (namespace, delivery_id, part)
){packed};
create index {i}delivery_event on {t}delivery (namespace, source, event_id){if_source};

-- How many deliveries of an event came beyond those that are kept. The key comes first: SQLite 3.40
-- takes the numbers of a table without rowid for missing in its integrity_check, where they come
-- first and nothing else follows the key.
create table {t}surplus (
    namespace {key} not null,
    source {key} not null,
    event_id {key} not null,
    count {int} not null,
    last_at {int} not null,
    primary key (namespace, source, event_id)
){packed};

-- Genuine deliveries that their source could not read, each once, until it can.
create table {t}unparsed (
    received_at {int} not null,
    last_at {int} not null,
    sent_at {int},
    copies {int} not null,
    secret_index {small},
    namespace {key} not null,
    source {key} not null,
    content_hash {key} not null,
    delivery_id {key} not null,
    error text not null,
    request text not null,
    body {bytes} not null,
    primary key (namespace, source, content_hash)
);
create unique index {i}unparsed_delivery on {t}unparsed (namespace, delivery_id){if_delivery};

-- Counts of what was refused, with a few samples; as many rows as there are sources and reasons.
create table {t}refusal (
    count {int} not null,
    first_at {int} not null,
    last_at {int} not null,
    namespace {key} not null,
    source {key} not null,
    reason {key} not null,
    samples text not null,
    primary key (namespace, source, reason)
){packed};

-- One durable execution. The state is in no index and in no predicate, so that on PostgreSQL
-- every update of a run is HOT; what must be found by state has a narrow table or column.
create table {t}run (
    fence {int} not null,
    created_at {int} not null,
    started_at {int},
    ended_at {int},
    deadline_at {int},
    problem_at {int},
    dismissed_at {int},
    generation {small} not null,
    attempt {small} not null,
    failures {small} not null,
    crashes {small} not null,
    parent_generation {small},
    is_called {small} not null,
    depth {small} not null,
    is_stale {small} not null,
    namespace {key} not null,
    run_id {key} not null,
    workflow {key} not null,
    source {key} not null,
    event_id {key} not null,
    replay_id {key} not null,
    state {key} not null check ({is_run_state}),
    output text,
    error text,
    reason text,
    warning text,
    replay_of {key},
    parent_run_id {key},
    input text,
    key {key},
    pruned_at {int},
    primary key (namespace, run_id)
){packed}{hot};
-- At most one original run per (event, workflow); a replay adds its request id (RULINGS 11).
create unique index {i}run_identity on {t}run (namespace, source, event_id, workflow, replay_id){if_source};
create index {i}run_parent on {t}run (namespace, parent_run_id) where parent_run_id is not null;
-- A key is written with its run and stays, so that updates of a run are HOT beside this index too.
create index {i}run_key on {t}run (namespace, key, run_id) where key is not null;
-- Dead letters, newest first: all of them, and those that nobody dismissed. Only what fails or is held
-- pays for them.
create index {i}run_problem on {t}run (namespace, run_id) where problem_at is not null;
create index {i}run_open on {t}run (namespace, run_id) where problem_at is not null and dismissed_at is null;

-- What wants attention: a row for every run that is not terminal. process_id names the holder;
-- without one the run is claimed when due_at has come (never, while it is held: no row then).
-- woken is set by whoever ends what the run waits for, so that no wake-up is lost between a
-- look and the unloading: both sides update this row.
create table {t}queue (
    namespace {key} not null,
    run_id {key} not null,
    workflow {key} not null,
    due_at {int} not null,
    process_id {key},
    woken {small} not null,
    is_suspect {small} not null,
    primary key (namespace, run_id)
){packed};
create index {i}queue_due on {t}queue (namespace, due_at) where process_id is null;
create index {i}queue_owned on {t}queue (namespace, process_id) where process_id is not null;

-- The checkpoint of a step.
create table {t}step (
    started_at {int} not null,
    ended_at {int},
    wake_at {int},
    key_memory_ms {int},
    generation {small} not null,
    ordinal {small} not null,
    seq {small} not null,
    attempt {small} not null,
    tries {small} not null,
    namespace {key} not null,
    run_id {key} not null,
    name {key} not null,
    item {key} not null,
    kind {key} not null,
    state {key} not null check ({is_step_state}),
    output text,
    error text,
    child_run_id {key},
    origin {key},
    inputs_hash {key},
    effect {key},
    key_scope {key},
    begun text,
    primary key (namespace, run_id, generation, name, item, ordinal)
){packed};

-- Attempts that ended without ending their generation well.
create table {t}attempt (
    namespace {key} not null,
    run_id {key} not null,
    generation {small} not null,
    attempt {small} not null,
    started_at {int},
    ended_at {int} not null,
    outcome {key} not null,
    error text,
    process_id {key},
    failed_steps text,
    primary key (namespace, run_id, generation, attempt)
){packed};

-- Who did what, when; only ever appended to. run_id is empty for what is about no run.
create table {t}audit (
    namespace {key} not null,
    run_id {key} not null,
    audit_id {key} not null,
    at {int} not null,
    verb {key} not null,
    actor text not null,
    detail text,
    request_id {key},
    primary key (namespace, run_id, audit_id)
){packed};
create index {i}audit_time on {t}audit (namespace, at, audit_id){if_at};
-- One request of an operator's is done to a run once, whichever process it reaches.
create unique index {i}audit_request on {t}audit (namespace, request_id, run_id) where request_id is not null;

-- Registered workflows with their triggers, so that any process can accept for all of them.
create table {t}workflow (
    namespace {key} not null,
    name {key} not null,
    triggers text not null,
    deadline_ms {int},
    seen_at {int} not null,
    rules text,
    retention text,
    tags text,
    primary key (namespace, name)
){packed};

-- What holds leases. A process id is random per start; an instance is a name that a person gave.
create table {t}process (
    namespace {key} not null,
    process_id {key} not null,
    epoch {int} not null,
    instance {key},
    host text not null,
    pid {int} not null,
    version text not null,
    started_at {int} not null,
    lease_until {int} not null,
    primary key (namespace, process_id)
){packed};

-- The row that each batch of a process updates first and that a takeover or an operator updates
-- to shut the batches out. Apart from the heartbeat's row, so that the two never wait for each
-- other (RULINGS 1). last_batch resolves a commit whose reply was lost.
create table {t}committer (
    namespace {key} not null,
    process_id {key} not null,
    epoch {int} not null,
    last_batch {key},
    primary key (namespace, process_id)
){packed}{hot};

-- The newest version that was accepted of each subject, for workflows with version=; the text sorts
-- as versions do. The event that brought it is told from the older ones by its identity.
create table {t}version (
    namespace {key} not null,
    workflow {key} not null,
    subject {key} not null,
    version {key} not null,
    source {key} not null,
    event_id {key} not null,
    primary key (namespace, workflow, subject)
){packed}{hot};

-- A workflow that wants an event and has no run of it: why. Decided with the event's insert, so that
-- every redelivery is told the same; run_id is the id that the run would have had.
create table {t}skipped (
    at {int} not null,
    namespace {key} not null,
    source {key} not null,
    event_id {key} not null,
    workflow {key} not null,
    reason {key} not null check ({is_skip}),
    run_id {key} not null,
    version {key},
    newest {key},
    key {key},
    holder_run_id {key},
    is_other_payload {small} not null,
    parent_run_id {key},
    primary key (namespace, source, event_id, workflow)
){packed};
-- Who called for a run and waits for the holder of its key instead: the end of that one wakes them.
create index {i}skipped_joined on {t}skipped (namespace, holder_run_id) where parent_run_id is not null;

-- Who holds a key: one row for each that is held or remembered. The row is the lock of its key: who
-- claims it, gives it free or lines up for it has it first. is_replaced says that a newer run waits
-- and the holder is still to be cancelled. On PostgreSQL a transaction that found no row writes one
-- without a run first, and takes it away again if nobody claims it.
create table {t}holder (
    claimed_at {int} not null,
    window_ms {int},
    is_replaced {small} not null,
    namespace {key} not null,
    workflow {key} not null,
    key {key} not null,
    run_id {key} not null,
    once {key} not null,
    payload_hash {key},
    primary key (namespace, workflow, key)
){packed}{hot};
create index {i}holder_replaced on {t}holder (namespace) where is_replaced = 1;

-- Runs that wait for a key, in the order of their ids; the first is next.
create table {t}waiter (
    namespace {key} not null,
    workflow {key} not null,
    key {key} not null,
    run_id {key} not null,
    payload_hash {key},
    primary key (namespace, workflow, key, run_id)
){packed};

-- Who may come in: users, tokens and links for once; hashes only.
create table {t}credential (
    created_at {int} not null,
    expires_at {int},
    used_at {int},
    namespace {key} not null,
    kind {key} not null check (kind in ('user', 'token', 'link')),
    id {key} not null,
    name {key} not null,
    role {key} not null check (role in ('viewer', 'operator', 'admin')),
    secret text not null,
    primary key (namespace, kind, id)
){packed};

-- Browsers that are logged in; a handful, so that they are found without another index.
create table {t}session (
    created_at {int} not null,
    used_at {int} not null,
    namespace {key} not null,
    id {key} not null,
    name {key} not null,
    csrf {key} not null,
    primary key (namespace, id)
){packed};

-- Events whose callers wrote them beside their own rows, in their own transactions. A worker makes
-- events, runs and keys of them; what is made twice is found out by the event's identity. Of the body
-- the database knows nothing.
create table {t}outbox (
    at {int} not null,
    namespace {key} not null,
    outbox_id {key} not null,
    body text not null,
    primary key (namespace, outbox_id)
){packed};

-- Open waits for an event, one row for each event that would end one (a wait for one of several has
-- several). Here is looked whenever events are stored, so it has nothing of waits that are over. An
-- empty subject means any; the condition is an expression in its stored form.
create table {t}wait (
    since_at {int} not null,
    until_at {int},
    generation {small} not null,
    ordinal {small} not null,
    part {small} not null,
    namespace {key} not null,
    run_id {key} not null,
    name {key} not null,
    item {key} not null,
    type {key} not null,
    subject {key} not null,
    source {key} not null,
    condition text,
    primary key (namespace, run_id, generation, name, item, ordinal, part)
){packed};
create index {i}wait_type on {t}wait (namespace, type, subject){if_type};
-- Who waits looks for events about its subject that came before; those without one are looked for by
-- time, and pay nothing here.
create index {i}event_subject on {t}event (namespace, subject, received_at) where subject is not null;

-- Events that fit an open wait of a run, told by whoever stored them, after that was durable. The run
-- decides which wait takes which.
create table {t}offer (
    namespace {key} not null,
    run_id {key} not null,
    source {key} not null,
    event_id {key} not null,
    primary key (namespace, run_id, source, event_id)
){packed};

-- What is completed once from outside. The token itself is nowhere in the store.
create table {t}promise (
    created_at {int} not null,
    expires_at {int},
    ended_at {int},
    generation {small} not null,
    ordinal {small} not null,
    namespace {key} not null,
    token_hash {key} not null,
    run_id {key} not null,
    name {key} not null,
    item {key} not null,
    state {key} not null check ({is_promise_state}),
    output text,
    primary key (namespace, token_hash)
){packed};

-- Replays inherit an old window of events; retention asks for those that are not over.
create index {i}run_replay on {t}run (namespace, run_id) where replay_of is not null;

-- Addresses that some process sends notices to, so that whoever holds a run or lets it fail writes
-- them, also a process that was not told of any. Neither the address nor a secret is in here.
create table {t}notice_address (
    seen_at {int} not null,
    off_at {int},
    namespace {key} not null,
    address_id {key} not null,
    shown text not null,
    kinds {key} not null,
    primary key (namespace, address_id)
){packed};

-- What an address is to be told of a run: written with the failure or the hold, sent afterwards. It
-- is a copy, since the run may go on meanwhile and every try has to say the same.
create table {t}notice (
    at {int} not null,
    due_at {int},
    ended_at {int},
    tries {small} not null,
    generation {small} not null,
    attempt {small} not null,
    namespace {key} not null,
    notice_id {key} not null,
    address_id {key} not null,
    type {key} not null,
    state {key} not null check ({is_notice_state}),
    run_id {key} not null,
    workflow {key} not null,
    source {key} not null,
    event_id {key} not null,
    event_type {key},
    key {key},
    reason text,
    error text,
    trouble text,
    primary key (namespace, notice_id, address_id)
){packed};
create index {i}notice_due on {t}notice (namespace, due_at) where due_at is not null;
create index {i}notice_time on {t}notice (namespace, at, notice_id){if_at};

-- What came first under a signature that covers nothing of it, so that nothing else is taken under it
-- by any process. until_at: it is refused for its age from then on; without one the row stays.
create table {t}proof (
    until_at {int},
    namespace {key} not null,
    source {key} not null,
    proof_hash {key} not null,
    content_hash {key} not null,
    primary key (namespace, source, proof_hash)
){packed};
create index {i}proof_until on {t}proof (namespace, until_at) where until_at is not null;

-- How far a bulk action has come, told now and then by whoever is at it, so that every process can say.
-- Few, and none older than a month. runs is the list of what was found when it first began: whoever goes on
-- with it does what is left of that, and not what the filter would find by then.
create table {t}bulk (
    begun_at {int} not null,
    told_at {int} not null,
    is_over {small} not null,
    namespace {key} not null,
    bulk_id {key} not null,
    teller {key} not null,
    actor text not null,
    asked {key} not null,
    reply text not null,
    runs text,
    primary key (namespace, bulk_id)
){packed};

-- How often workflows were registered or forgotten. Whoever accepts an event decided by triggers which
-- runs it starts; the commit says by how many registrations, and is refused when there were more. The
-- key comes first, as in surplus.
create table {t}registry (
    namespace {key} not null,
    registrations {int} not null,
    primary key (namespace)
){packed};
