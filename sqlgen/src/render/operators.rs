//! Statements of the operators steps.

use super::{Cached, Named, sql};
