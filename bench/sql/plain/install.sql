-- What most services write first: one table, one partial index, rows updated in place.
create table plain_jobs (
    id            bigint generated always as identity primary key,
    queue         text        not null,
    state         text        not null default 'available',
    priority      smallint    not null default 2,
    run_at        timestamptz not null default now(),
    attempt       smallint    not null default 0,
    max_attempts  smallint    not null default 25,
    kind          text        not null,
    args          jsonb       not null,
    attempted_at  timestamptz,
    finalized_at  timestamptz,
    error         text
);
create index plain_jobs_fetch on plain_jobs (queue, priority, run_at, id) where state = 'available';
