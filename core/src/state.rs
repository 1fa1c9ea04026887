//! What a job can be.

use core::fmt;

/// The state of a job, in the words of the public surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum JobState {
    /// In its lane, unclaimed.
    Available,
    /// To be made available at its `run_at`; never tried.
    Scheduled,
    /// Failed an attempt; to be made available again at its `run_at`.
    Retryable,
    /// Claimed; the attempt is open.
    Running,
    /// The attempt waits for an outside event and holds a materialised lease.
    WaitingExternal,
    /// Ended well. Terminal.
    Completed,
    /// Ended badly: no attempts left, or failed for good. Terminal, retryable for the floor.
    Failed,
    /// Ended by an operator. Terminal.
    Cancelled,
}

impl JobState {
    /// Every state, in the order in which a job usually passes them.
    pub const ALL: [Self; 8] = [
        Self::Available,
        Self::Scheduled,
        Self::Retryable,
        Self::Running,
        Self::WaitingExternal,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The word stored in the database and shown to people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Scheduled => "scheduled",
            Self::Retryable => "retryable",
            Self::Running => "running",
            Self::WaitingExternal => "waiting_external",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state that `word` names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Whether nothing happens to the job any more unless an operator asks.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Available
            | Self::Scheduled
            | Self::Retryable
            | Self::Running
            | Self::WaitingExternal => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
