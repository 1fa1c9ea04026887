use anyhow::Result;
use crate::scenario::Bench;
pub(crate) async fn run(_bench: &mut Bench) -> Result<()> { Ok(()) }
