-- core: rules::is_carried. The row is called d; the first parameter is the cutoff, NULL when the
-- floor is off. Never NULL itself, so that it can be negated.
coalesce(d.state = 'failed' and d.finalized_at >= $1, false)
