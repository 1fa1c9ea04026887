//! Statements of the claim steps.

use super::{Cached, Named, sql};
