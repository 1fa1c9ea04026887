listen plain_jobs
