with jobs as (
    insert into plain_jobs (queue, kind, args)
    select queue, kind, args::jsonb from unnest($1::text[], $2::text[], $3::text[]) as job (queue, kind, args)
    returning queue
)
select pg_notify('plain_jobs', queue) from jobs group by queue
