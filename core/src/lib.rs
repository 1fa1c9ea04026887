//! The decisions of Awa as plain values: no I/O, no clock, no SQL.
