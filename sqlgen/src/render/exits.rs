//! Statements of the exits steps.

use super::{Cached, Named, sql};
