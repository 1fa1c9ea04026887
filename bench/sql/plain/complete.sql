update plain_jobs set state = 'completed', finalized_at = now() where id = any ($1) and state = 'running'
