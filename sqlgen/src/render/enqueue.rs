//! Statements of the enqueue steps.

use super::{Cached, Named, sql};
