select state, count(*) from plain_jobs where queue = $1 group by state
