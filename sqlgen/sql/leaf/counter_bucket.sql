-- core: rules::counter_bucket. The row is called d.
((d.job_id % 8 + 8) % 8)::smallint
