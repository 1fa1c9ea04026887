-- core: rules::counter_bucket. The row is called d.
(mod(d.job_id, 8))::smallint
