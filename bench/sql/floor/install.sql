-- The least that could be called a queue: append, one index, one row of evidence a batch. It forgets
-- what became of a job, and with several producers it would skip rows that become visible late: it
-- bounds what PostgreSQL can do, and is not a queue.
create table floor_jobs (
    lane  bigint not null,
    seq   bigint not null generated always as identity,
    kind  text   not null,
    args  jsonb  not null
);
create index floor_jobs_fetch on floor_jobs (lane, seq);
create table floor_claims (
    lane       bigint      not null,
    first      bigint      not null,
    last       bigint      not null,
    claimed_at timestamptz not null
);
create table floor_completions (
    lane         bigint      not null,
    first        bigint      not null,
    last         bigint      not null,
    completed_at timestamptz not null
);
