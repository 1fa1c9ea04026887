insert into floor_completions values ($1, $2, $3, clock_timestamp())
