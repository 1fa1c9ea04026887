//! Statements of the rings steps.

use super::{Cached, Named, sql};
