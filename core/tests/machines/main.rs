//! The machines against scripted replies: every path of each, its plan as text, and what each makes
//! of a reply that is wrong, missing, one too many, or a refusal.

mod claims;
mod declare_and_read;
mod explain;
mod operators;
mod prune;
mod rings;
mod script;
mod ways_in;
mod ways_out;
