-- The last position drawn by anyone. A statement of its own: a sequence is read as it is now, not as
-- it was when the snapshot was taken.
--
-- Columns: position bigint, 0 if none was ever drawn.
select case when is_called then last_value else last_value - 1 end as position
  from {schema}.position_seq
