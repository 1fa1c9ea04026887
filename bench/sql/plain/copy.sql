copy plain_jobs (queue, kind, args) from stdin
