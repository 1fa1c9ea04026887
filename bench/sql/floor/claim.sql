with taken as (
    select seq, kind, args::text from floor_jobs where lane = $1 and seq > $2 order by seq limit $3
), evidence as (
    insert into floor_claims select $1, min(seq), max(seq), clock_timestamp() from taken having count(*) > 0
)
select seq, kind, args from taken
