-- The attempts that `named_claims` proves to be open under the expected job and run lease (R026-07):
-- a from and a where clause; b is the claim, j the attempt, j.entry its place in the parameters.
    from named_claims b
   cross join lateral (
     select unnest(b.places) as place, unnest(b.asked_jobs) as job_id, unnest(b.asked_leases) as run_lease,
            generate_series(b.first, b.last) as entry) as j
   where j.place between 1 and b.n
     and j.job_id = coalesce(b.job_ids[j.place], b.lane_seqs[j.place])
     and j.run_lease = coalesce(b.run_leases[j.place], b.run_leases[1])
     and (b.batch_id + j.place - 1 <@ any (b.closed_together)) is not true
     and (b.batch_id + j.place - 1 = any (b.closed_singly)) is not true
