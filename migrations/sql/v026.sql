-- v026: the schema of narrow terminal history.
--
-- {schema} stands for the quoted name of the schema that holds the installation.
-- Three rings hold everything that comes and goes with jobs; their children are emptied by TRUNCATE
-- and by nothing else. What is updated in place is small: cursors, slots, deferred jobs, counters.
--
-- A lane stands for one (queue, priority, enqueue_shard); tables carry its number, so that keys
-- are short. The view terminal_jobs spells it out again.

create sequence {schema}.position_seq as bigint cache 1;
comment on sequence {schema}.position_seq is
  'Positions of all lanes, and the ids of jobs: a job is called by the first position it drew. '
  'Never reset, never cached: a position may not outlive the transaction that drew it.';

-- A batch''s receipts are numbered from its id on, so ids lie 4096 apart.
create sequence {schema}.lease_claim_receipt_id_seq as bigint start 4096 increment 4096 cache 1;

-- Queues and lanes -----------------------------------------------------------------------------

create table {schema}.queues (
  queue       text collate "C" primary key check (octet_length(queue) between 1 and 200),
  shards      smallint not null check (shards between 1 and 64),
  declared_at timestamptz not null default now()
);

create table {schema}.queue_lanes (
  lane_id       bigint generated always as identity primary key,
  queue         text collate "C" not null references {schema}.queues,
  priority      smallint not null check (priority between 1 and 4),
  enqueue_shard smallint not null check (enqueue_shard >= 0),
  unique (queue, priority, enqueue_shard)
);

-- Rings ----------------------------------------------------------------------------------------

create table {schema}.queue_ring_state (
  singleton    boolean primary key default true check (singleton),
  current_slot int not null,
  generation   bigint not null,
  slot_count   int not null
);
create table {schema}.queue_ring_slots (
  slot       int primary key,
  generation bigint not null,
  state      text not null check (state in ('open', 'sealed', 'pruned')),
  opened_at  timestamptz not null default now(),
  sealed_at  timestamptz,
  check ((state = 'sealed') = (sealed_at is not null))
);
create table {schema}.lease_ring_state (like {schema}.queue_ring_state including all);
create table {schema}.lease_ring_slots (like {schema}.queue_ring_slots including all);
create table {schema}.claim_ring_state (like {schema}.queue_ring_state including all);
create table {schema}.claim_ring_slots (like {schema}.queue_ring_slots including all);

-- The queue ring: bodies, evidence, history -------------------------------------------------------

-- Immutable. The default draws the transaction''s id before the position (CASE fixes the order):
-- claims rely on it, whoever inserts and however.
create table {schema}.ready_entries (
  ready_slot       int not null,
  max_attempts     smallint not null check (max_attempts >= 1),
  attempt          smallint not null default 0,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null default
    (case when pg_catalog.pg_current_xact_id() is not null
          then pg_catalog.nextval({position_seq}) end),
  moved_job_id     bigint,
  job_id           bigint not null generated always as (coalesce(moved_job_id, lane_seq)) stored,
  run_lease        bigint not null default 0,
  run_at           timestamptz not null default now(),
  created_at       timestamptz not null default now(),
  kind             text not null,
  args             jsonb not null,
  payload          jsonb,
  unique_key       bytea,
  unique_states    bigint
) partition by list (ready_slot);
comment on column {schema}.ready_entries.moved_job_id is
  'The job that came back to a lane by retry or promotion; NULL for a job at its first position.';

create table {schema}.ready_tombstones (
  ready_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null,
  job_id           bigint not null,
  tombstoned_at    timestamptz not null,
  primary key (ready_slot, lane_id, lane_seq)
) partition by list (ready_slot);

-- Which positions of a lane are spent: by a claim (its batch) or by a tombstone (no batch, n = 0).
-- A claim also says up to where no position of the lane can ever hold an unclaimed row, in this slot or
-- another: what others say of positions up to there need not be read.
create table {schema}.ready_claim_attempt_batches (
  ready_slot       int not null,
  n                int not null check (n >= 0),
  ready_generation bigint not null,
  lane_id          bigint not null,
  first_seq        bigint not null,
  last_seq         bigint not null,
  batch_id         bigint,
  spent_at         timestamptz not null,
  spent_to         bigint not null default 0,
  ranges           int8multirange not null,
  check ((n = 0) = (batch_id is null))
) partition by list (ready_slot);

-- Retryable history: narrow while its body lies in ready_entries, else wide.
create table {schema}.done_entries (
  ready_slot       int not null,
  attempt          smallint not null,
  max_attempts     smallint,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null,
  job_id           bigint not null,
  run_lease        bigint not null,
  attempted_at     timestamptz,
  finalized_at     timestamptz not null,
  run_at           timestamptz,
  created_at       timestamptz,
  state            text collate "C" not null check (state in ('completed', 'failed', 'cancelled')),
  kind             text not null,
  args             jsonb,
  payload          jsonb,
  unique_key       bytea,
  unique_states    bigint,
  primary key (ready_slot, lane_id, lane_seq),
  check ((args is null) = (max_attempts is null)
     and (args is null) = (run_at is null)
     and (args is null) = (created_at is null))
) partition by list (ready_slot);

-- Successes, a row for each (segment, lane, claim slot) of a flush. An array of one element
-- stands for every job of the row; job_ids is NULL where each job is called by its position.
create table {schema}.receipt_completion_batches (
  ready_slot       int not null,
  claim_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  completed_count  int not null check (completed_count >= 1),
  finalized_at     timestamptz not null,
  first_seq        bigint not null,
  last_seq         bigint not null,
  lane_seqs        bigint[] not null,
  job_ids          bigint[],
  run_leases       bigint[] not null,
  attempts         smallint[] not null,
  attempted_at     timestamptz[] not null
) partition by list (ready_slot);

create table {schema}.receipt_completion_tombstones (
  ready_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null,
  job_id           bigint not null,
  deleted_at       timestamptz not null,
  primary key (ready_slot, lane_id, lane_seq)
) partition by list (ready_slot);

create table {schema}.queue_terminal_count_deltas (
  ready_slot       int not null,
  counter_bucket   smallint not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  delta            bigint not null,
  state            text collate "C" not null
) partition by list (ready_slot);

-- The claim ring: receipts and what closes them ---------------------------------------------------

create table {schema}.lease_claim_batches (
  claim_slot       int not null,
  n                int not null check (n between 1 and 4096),
  batch_id         bigint not null,
  ready_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  claimed_at       timestamptz not null,
  deadline_at      timestamptz,
  lane_seqs        bigint[] not null,
  job_ids          bigint[],
  run_leases       bigint[] not null,
  attempts         smallint[] not null
) partition by list (claim_slot);

-- Claims whose deadline is a job''s own.
create table {schema}.lease_claims (
  claim_slot       int not null,
  attempt          smallint not null,
  receipt_id       bigint not null,
  job_id           bigint not null,
  run_lease        bigint not null,
  ready_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null,
  claimed_at       timestamptz not null,
  deadline_at      timestamptz,
  primary key (claim_slot, receipt_id)
) partition by list (claim_slot);

create table {schema}.lease_claim_closure_batches (
  claim_slot       int not null,
  n                int not null check (n >= 1),
  batch_id         bigint not null,
  ready_slot       int not null,
  ready_generation bigint not null,
  receipts         int8multirange not null
) partition by list (claim_slot);

create table {schema}.lease_claim_closures (
  claim_slot       int not null,
  batch_id         bigint not null,
  receipt_id       bigint not null,
  ready_slot       int not null,
  ready_generation bigint not null,
  closed_at        timestamptz not null,
  primary key (claim_slot, batch_id, receipt_id)
) partition by list (claim_slot);

-- The lease ring: attempts that need a row of their own --------------------------------------------

create table {schema}.leases (
  lease_slot       int not null,
  claim_slot       int not null,
  lease_generation bigint not null,
  job_id           bigint not null,
  run_lease        bigint not null,
  receipt_id       bigint not null,
  ready_slot       int not null,
  ready_generation bigint not null,
  lane_id          bigint not null,
  lane_seq         bigint not null,
  state            text collate "C" not null check (state in ('running', 'waiting_external')),
  heartbeat_at     timestamptz not null,
  deadline_at      timestamptz,
  primary key (lease_slot, job_id, run_lease)
) partition by list (lease_slot);

create table {schema}.attempt_state (
  job_id       bigint not null,
  run_lease    bigint not null,
  heartbeat_at timestamptz not null,
  progress     jsonb,
  primary key (job_id, run_lease)
);

-- Jobs that wait for a time ------------------------------------------------------------------------

create table {schema}.deferred_jobs (
  job_id        bigint primary key,
  lane_id       bigint not null,
  run_at        timestamptz not null check (isfinite(run_at)),
  created_at    timestamptz not null default now(),
  attempted_at  timestamptz,
  run_lease     bigint not null default 0,
  attempt       smallint not null default 0,
  max_attempts  smallint not null check (max_attempts >= 1),
  state         text collate "C" not null check (state in ('scheduled', 'retryable')),
  kind          text not null,
  args          jsonb not null,
  payload       jsonb,
  unique_key    bytea,
  unique_states bigint
);
create index deferred_jobs_due on {schema}.deferred_jobs (run_at, job_id);

-- Counts -----------------------------------------------------------------------------------------

create table {schema}.queue_terminal_live_counts (
  ready_slot     int not null,
  counter_bucket smallint not null,
  lane_id        bigint not null,
  state          text collate "C" not null,
  count          bigint not null,
  primary key (ready_slot, lane_id, counter_bucket, state)
);

create table {schema}.queue_terminal_rollups (
  lane_id                bigint primary key,
  pruned_completed_count bigint not null default 0
);

create table {schema}.terminal_count_trust (
  singleton boolean primary key default true check (singleton),
  trusted   boolean not null
);

-- Children, cursors ---------------------------------------------------------------------------------

do {quote}
declare
  ring   record;
  parent text;
begin
  for ring in
    select * from (values
      ('queue', 16, array['ready_entries', 'ready_tombstones', 'ready_claim_attempt_batches',
                          'receipt_completion_batches', 'receipt_completion_tombstones',
                          'done_entries', 'queue_terminal_count_deltas']),
      ('lease', 8,  array['leases']),
      ('claim', 8,  array['lease_claim_batches', 'lease_claims', 'lease_claim_closure_batches',
                          'lease_claim_closures'])
    ) as r (name, slots, parents)
  loop
    foreach parent in array ring.parents loop
      for slot in 0 .. ring.slots - 1 loop
        -- Never vacuumed and never analysed: they are emptied by TRUNCATE, and the statistics of a
        -- small child would stay in cached plans when it grows.
        execute format(
          'create table %1$I.%2$I partition of %1$I.%3$I for values in (%4$s) '
          'with (autovacuum_enabled = off)',
          {schema_name}, parent || '_' || slot, parent, slot);
      end loop;
    end loop;
    execute format(
      'insert into %I.%I (current_slot, generation, slot_count) values (0, 1, %s)',
      {schema_name}, ring.name || '_ring_state', ring.slots);
    execute format(
      'insert into %I.%I (slot, generation, state) '
      'select s, case s when 0 then 1 else 0 end, case s when 0 then ''open'' else ''pruned'' end '
      'from generate_series(0, %s - 1) as s',
      {schema_name}, ring.name || '_ring_slots', ring.slots);
  end loop;

  -- A unique key of a partitioned table must hold the partition key, which these scans lack.
  for slot in 0 .. 15 loop
    execute format('create unique index on %I.%I (lane_id, lane_seq)',
                   {schema_name}, 'ready_entries_' || slot);
    execute format('create index on %I.%I (moved_job_id) where moved_job_id is not null',
                   {schema_name}, 'ready_entries_' || slot);
    execute format('create index on %I.%I (lane_id, last_seq)',
                   {schema_name}, 'ready_claim_attempt_batches_' || slot);
    execute format('create index on %I.%I (job_id)',
                   {schema_name}, 'done_entries_' || slot);
  end loop;
  for slot in 0 .. 7 loop
    execute format('create unique index on %I.%I (batch_id)',
                   {schema_name}, 'lease_claim_batches_' || slot);
    execute format('create index on %I.%I (batch_id)',
                   {schema_name}, 'lease_claim_closure_batches_' || slot);
    execute format('create index on %I.%I (deadline_at) where deadline_at is not null',
                   {schema_name}, 'lease_claim_batches_' || slot);
    execute format('create index on %I.%I (deadline_at) where deadline_at is not null',
                   {schema_name}, 'lease_claims_' || slot);
  end loop;
end
{quote};

insert into {schema}.terminal_count_trust (trusted) values (true);

-- Public surfaces -------------------------------------------------------------------------------------

create view {schema}.terminal_jobs as
select d.job_id, d.state, l.queue, l.priority, l.enqueue_shard, d.kind, d.attempt, d.run_lease,
       d.ready_slot, d.ready_generation, d.lane_id, d.lane_seq,
       coalesce(d.args, r.args) as args,
       coalesce(d.max_attempts, r.max_attempts) as max_attempts,
       coalesce(d.run_at, r.run_at) as run_at,
       coalesce(d.created_at, r.created_at) as created_at,
       d.attempted_at, d.finalized_at,
       case when d.args is null then coalesce(d.payload, r.payload) else d.payload end as payload,
       coalesce(d.unique_key, r.unique_key) as unique_key,
       coalesce(d.unique_states, r.unique_states) as unique_states,
       false as compact,
       d.args is null and r.lane_seq is null as body_missing
  from {schema}.done_entries d
  join {schema}.queue_lanes l on l.lane_id = d.lane_id
  left join {schema}.ready_entries r
    on r.ready_slot = d.ready_slot and r.ready_generation = d.ready_generation
   and r.lane_id = d.lane_id and r.lane_seq = d.lane_seq and d.args is null
union all
select coalesce(u.job_id, u.lane_seq), 'completed', l.queue, l.priority, l.enqueue_shard, r.kind,
       coalesce(u.attempt, b.attempts[1]), coalesce(u.run_lease, b.run_leases[1]),
       b.ready_slot, b.ready_generation, b.lane_id, u.lane_seq,
       r.args, r.max_attempts, r.run_at, r.created_at,
       coalesce(u.attempted_at, b.attempted_at[1]), b.finalized_at,
       r.payload, r.unique_key, r.unique_states, true, r.lane_seq is null
  from {schema}.receipt_completion_batches b
  join {schema}.queue_lanes l on l.lane_id = b.lane_id
 cross join lateral unnest(b.lane_seqs, b.job_ids, b.run_leases, b.attempts, b.attempted_at)
    as u (lane_seq, job_id, run_lease, attempt, attempted_at)
  left join {schema}.ready_entries r
    on r.ready_slot = b.ready_slot and r.ready_generation = b.ready_generation
   and r.lane_id = b.lane_id and r.lane_seq = u.lane_seq
 where not exists (select from {schema}.receipt_completion_tombstones t
                    where t.ready_slot = b.ready_slot and t.ready_generation = b.ready_generation
                      and t.lane_id = b.lane_id and t.lane_seq = u.lane_seq);
comment on view {schema}.terminal_jobs is
  'Every retained terminal job with its body, whichever way it is stored. Read only.';

create function {schema}.enqueue(
  queue        text,
  kind         text,
  args         jsonb default '{}',
  priority     int default 2,
  run_at       timestamptz default null,
  max_attempts int default 25,
  shard        int default 0,
  metadata     jsonb default null,
  tags         text[] default null
) returns bigint
language plpgsql volatile
set search_path = ''
as {quote}
declare
  wrong text;
  body  jsonb;
  lane  bigint;
  job   bigint;
begin
  -- The same bounds as the library's, in the same words. A value in a JSON document lies too deep where
  -- a container stands inside 256 others; less than 512 bytes can't hold so many.
  wrong := case
    when enqueue.queue is null then 'queue must not be null'
    when enqueue.queue = '' then 'queue must not be empty'
    when octet_length(enqueue.queue) > 200 then
      format('queue is %s bytes long; at most 200 are allowed', octet_length(enqueue.queue))
    when enqueue.kind is null then 'kind must not be null'
    when enqueue.kind = '' then 'kind must not be empty'
    when octet_length(enqueue.kind) > 200 then
      format('kind is %s bytes long; at most 200 are allowed', octet_length(enqueue.kind))
    when enqueue.args is null then 'args must not be null'
    when octet_length(enqueue.args::text) > 16777216 then
      format('args is %s bytes long; at most 16777216 are allowed', octet_length(enqueue.args::text))
    when octet_length(enqueue.args::text) > 512 and jsonb_path_exists(
           enqueue.args, 'strict $.**{256} ? (@.type() == "object" || @.type() == "array")') then
      'args is nested too deep; at most 256 levels are allowed'
    when enqueue.priority is null then 'priority must not be null'
    when enqueue.priority not between 1 and 4 then
      format('priority is %s; it must lie between 1 and 4', enqueue.priority)
    when enqueue.run_at not between '4714-11-24 00:00:00+00 BC' and '294217-01-01 23:59:59.999999+00' then
      format('run_at is %s; it must lie between 4714-11-24 BC and 294217-01-01', enqueue.run_at)
    when enqueue.max_attempts is null then 'max_attempts must not be null'
    when enqueue.max_attempts not between 1 and 32767 then
      format('max_attempts is %s; it must lie between 1 and 32767', enqueue.max_attempts)
    when enqueue.shard is null then 'shard must not be null'
    when enqueue.shard not between 0 and 63 then
      format('shard is %s; it must lie between 0 and 63', enqueue.shard)
    when jsonb_typeof(enqueue.metadata) <> 'object' then 'metadata must be a JSON object'
    when array_ndims(enqueue.tags) > 1 then 'tags must have one dimension'
    when array_position(enqueue.tags, null) is not null then 'tag must not be null'
    when '' = any (enqueue.tags) then 'tag must not be empty'
  end;
  if wrong is null and cardinality(enqueue.tags) > 0 then
    select format('tag is %s bytes long; at most 200 are allowed', max(octet_length(t.tag)))
      into wrong
      from unnest(enqueue.tags) as t (tag)
    having max(octet_length(t.tag)) > 200;
  end if;
  if wrong is null then
    body := nullif(
      case when enqueue.metadata <> '{}' then jsonb_build_object('metadata', enqueue.metadata) else '{}' end
      || case when cardinality(enqueue.tags) > 0 then jsonb_build_object('tags', enqueue.tags) else '{}' end,
      '{}');
    wrong := case
      when octet_length(body::text) > 16777216 then
        format('metadata is %s bytes long with tags; at most 16777216 are allowed', octet_length(body::text))
      when octet_length(body::text) > 512 and jsonb_path_exists(
             body, 'strict $.**{256} ? (@.type() == "object" || @.type() == "array")') then
        'metadata is nested too deep; at most 255 levels are allowed'
    end;
  end if;
  if wrong is null then
    select l.lane_id into lane from {schema}.queue_lanes l
     where l.queue = enqueue.queue and l.priority = enqueue.priority and l.enqueue_shard = enqueue.shard;
    wrong := case
      when lane is not null then null
      when exists (select from {schema}.queues q where q.queue = enqueue.queue) then
        format('shard %s of queue "%s" is not declared', enqueue.shard, enqueue.queue)
      else format('queue "%s" is not declared in this schema', enqueue.queue)
    end;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = '22023';
  end if;

  if enqueue.run_at > now() then
    insert into {schema}.deferred_jobs (job_id, lane_id, run_at, state, kind, args, max_attempts, payload)
    values (nextval({position_seq}), lane, enqueue.run_at, 'scheduled', enqueue.kind, enqueue.args,
            enqueue.max_attempts, body)
    returning job_id into job;
  else
    insert into {schema}.ready_entries
           (ready_slot, ready_generation, lane_id, run_at, kind, args, max_attempts, payload)
    select s.current_slot, s.generation, lane, coalesce(enqueue.run_at, now()), enqueue.kind,
           enqueue.args, enqueue.max_attempts, body
      from {schema}.queue_ring_state s
    returning job_id into job;
  end if;
  return job;
end
{quote};
comment on function {schema}.enqueue is
  'Enqueues one job in the caller''s transaction and returns its id. Producers never wait for one another.';
