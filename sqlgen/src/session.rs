//! The session state that the engine allows itself: LISTEN, and the leader's lock (law 17).

use awa_core::{LaneId, SchemaName};

use crate::Sql;
use crate::template::{Template, quoted};

/// The channel on which workers hear of new jobs: a name of fixed length, because PostgreSQL would
/// refuse one as long as a schema's may be.
pub(crate) fn channel(schema: &SchemaName) -> String {
    // FNV-1a, 64 bits: two installations that share a channel by chance wake one another in vain.
    let hash = schema.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("awa_{hash:016x}")
}

/// Begins a transaction of the engine's own.
pub const BEGIN: &str = include_str!("../sql/session/Begin.sql");

impl Sql {
    /// Listens for new jobs.
    #[must_use]
    pub fn listen(&self) -> String {
        let channel = quoted(&channel(self.schema()));
        let text = Template(include_str!("../sql/session/Listen.sql"));
        text.spell_with(self.schema(), &[("channel", &channel)])
    }

    /// The lanes that a notification names.
    #[must_use]
    pub fn woken_lanes(payload: &str) -> Vec<LaneId> {
        // Anyone may notify on the channel: what is no lane is nobody's.
        payload.split(' ').filter_map(|word| word.parse().ok().map(LaneId)).collect()
    }

    /// Tries to lead. One row, one boolean.
    #[must_use]
    pub fn try_lead(&self) -> String {
        Template(include_str!("../sql/session/TryLead.sql")).spell(self.schema(), None)
    }

    /// Asks which schemas hold an installation. One parameter, text: what their names begin with. Rows of
    /// one column, text: the name.
    #[must_use]
    pub const fn installations() -> &'static str {
        include_str!("../sql/session/Installations.sql")
    }

    /// Asks for the isolation level of the transaction that it is sent in. One row, one text. It gives the
    /// transaction neither an id nor a lock.
    #[must_use]
    pub const fn isolation() -> &'static str {
        include_str!("../sql/session/Isolation.sql")
    }

    /// Asks whether this session leads. One row, one boolean.
    #[must_use]
    pub fn leads(&self) -> String {
        Template(include_str!("../sql/session/Leads.sql")).spell(self.schema(), None)
    }
}
