-- The statement's instant, read once, after the locks that earlier statements waited for, and how
-- far from it the last instant lies that can be stored (core: Instant::LAST).
clock as materialized (
  select r.instant, 9222424646399999999 - (extract(epoch from r.instant) * 1000000)::bigint as room_us
    from (select statement_timestamp() as instant) as r
)
