//! The decisions of a running process, as machines without a clock.
