-- core: rules::is_carried. The row is called d; $cutoff is the first parameter, NULL when the floor is off.
(d.state = 'failed' and d.finalized_at >= $1)
