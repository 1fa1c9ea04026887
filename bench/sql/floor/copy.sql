copy floor_jobs (lane, kind, args) from stdin
