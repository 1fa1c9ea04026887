update plain_jobs set state = 'failed', finalized_at = now(), error = $2 where id = any ($1) and state = 'running'
