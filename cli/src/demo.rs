//! The demo: the whole life of a few thousand jobs on a real server, told as it happens.

pub(crate) mod handlers;
mod play;
mod run;
mod scene;
pub(crate) mod shipped;

pub(crate) use play::play;
