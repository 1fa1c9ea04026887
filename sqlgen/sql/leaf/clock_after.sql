-- core: Instant::after, exact and saturating. span.us, not NULL, is the span, `clock` the instant.
-- Split in two, because PostgreSQL multiplies an interval by a double.
(clock.instant + interval '1.048576 s' * (least(span.us, clock.room_us) >> 20)
               + interval '0.000001 s' * (least(span.us, clock.room_us) & 1048575))
