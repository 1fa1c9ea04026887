//! The `awa` command.
fn main() {}
