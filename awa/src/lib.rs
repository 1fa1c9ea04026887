//! A job queue that lives inside the PostgreSQL a service already runs.
