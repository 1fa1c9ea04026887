update plain_jobs
   set state = 'running', attempt = attempt + 1, attempted_at = now()
 where id in (select id from plain_jobs
               where queue = $1 and state = 'available' and run_at <= now()
               order by priority, run_at, id
               limit $2
                 for update skip locked)
returning id, kind, args::text, attempt
