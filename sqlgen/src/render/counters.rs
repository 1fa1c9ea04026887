//! Statements of the counters steps.

use super::{Cached, Named, sql};
