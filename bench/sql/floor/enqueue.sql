insert into floor_jobs (lane, kind, args)
select lane, kind, args::jsonb from unnest($1::bigint[], $2::text[], $3::text[]) as job (lane, kind, args)
