//! The schema of Awa as numbered, checksummed SQL.
