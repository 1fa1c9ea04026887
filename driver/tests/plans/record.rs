//! Every flow, run where its plans were made early and late, by force and by the server's own choice.

use std::fmt;
use std::sync::LazyLock;

use awa_driver::Statements;

use crate::flows::{Flows, plan, plan_claims, work};
use crate::ground::Ground;
use crate::plan::Executed;
use crate::watched::{Seen, Watched};

/// What the tables held while statements ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rows {
    /// Freshly truncated ring children, and what the flows themselves write.
    Few,
    /// A million jobs waiting and a million in history.
    Millions,
}

/// What the tables held when the plans were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Planned {
    /// Nothing: freshly truncated ring children, never analysed.
    Empty,
    /// What they hold now, on a connection that had planned on empty ones: a child was truncated.
    Again,
    /// What they hold now, on a new connection.
    Full,
}

/// How the server comes to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Named statements and forced generic plans.
    Forced,
    /// Named statements that were run often enough for the server to choose.
    Auto,
    /// Unnamed statements, as behind a transaction pooler: planned anew each time, for the parameters.
    Unnamed,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Forced, Self::Auto, Self::Unnamed];

    async fn open(self, on: &Ground) -> Watched {
        let (statements, settings) = match self {
            Self::Forced => (Statements::Named, "set plan_cache_mode = force_generic_plan"),
            Self::Auto => (Statements::Named, ""),
            Self::Unnamed => (Statements::Unnamed, ""),
        };
        Watched::open(on.url, &on.sql, &on.plain, statements, settings).await
    }

    /// How often a statement is run before its plan stays: PostgreSQL looks at five plans for the
    /// parameters before it considers one for all.
    fn warm_up(self) -> usize {
        match self {
            Self::Forced | Self::Unnamed => 1,
            Self::Auto => 6,
        }
    }
}

/// Where a flow was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conditions {
    pub(crate) rows: Rows,
    pub(crate) planned: Planned,
    pub(crate) mode: Mode,
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, planned, mode } = self;
        write!(f, "{rows:?} rows, planned on {planned:?}, {mode:?}")
    }
}

/// All that was seen.
pub(crate) struct Record {
    pub(crate) at: Vec<(Conditions, Flows)>,
    /// Claims that a connection planned anew after the tables had grown by millions.
    pub(crate) claims_planned: usize,
}

/// A statement that was run: where, and as a part of which flow.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) under: Conditions,
    pub(crate) flow: &'static str,
    pub(crate) statement: &'a Executed,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ({})", self.flow, self.statement.step, self.under)
    }
}

impl Record {
    /// The one record of this process.
    pub(crate) fn get() -> &'static Self {
        // Made once, also where making it fails.
        static RECORD: LazyLock<Record> = LazyLock::new(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.unwrap().block_on(record())
        });
        &RECORD
    }

    /// Every statement of every flow.
    pub(crate) fn runs(&'static self) -> impl Iterator<Item = Run<'static>> {
        self.flows().flat_map(|(under, flow, seen)| {
            seen.executed.iter().map(move |statement| Run { under, flow, statement })
        })
    }

    /// Every flow.
    pub(crate) fn flows(
        &'static self,
    ) -> impl Iterator<Item = (Conditions, &'static str, &'static Seen)> {
        self.at.iter().flat_map(|(at, flows)| flows.iter().map(|(flow, seen)| (*at, *flow, seen)))
    }
}

async fn record() -> Record {
    let mut on = Ground::new().await;
    let mut at = Vec::new();
    let mut kept = Vec::new();
    for mode in Mode::ALL {
        let mut session = mode.open(&on).await;
        for _ in 0..mode.warm_up() {
            plan(&on, &mut session).await;
        }
        on.truncate_all().await;
        plan(&on, &mut session).await;
        let under = Conditions { rows: Rows::Few, planned: Planned::Empty, mode };
        at.push((under, work(&on, &mut session).await));
        if mode != Mode::Unnamed {
            kept.push((mode, session));
        }
    }
    on.truncate_all().await;
    for (_, session) in &mut kept {
        plan(&on, session).await;
    }
    on.fill().await;
    let mut claims_planned = 0;
    for planned in [Planned::Empty, Planned::Again] {
        for (mode, session) in &mut kept {
            if (planned, *mode) == (Planned::Again, Mode::Auto) {
                claims_planned = plan_claims(&on, session, 64).await;
            }
            let under = Conditions { rows: Rows::Millions, planned, mode: *mode };
            at.push((under, work(&on, session).await));
        }
        on.truncate_an_empty_slot().await;
    }
    for mode in Mode::ALL {
        let mut session = mode.open(&on).await;
        for _ in 0..mode.warm_up() {
            plan(&on, &mut session).await;
        }
        let under = Conditions { rows: Rows::Millions, planned: Planned::Full, mode };
        at.push((under, work(&on, &mut session).await));
    }
    Record { at, claims_planned }
}
