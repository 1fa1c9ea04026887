//! Names that users choose, checked where they enter.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use crate::fault::{Field, UserError};
use crate::limits::{NAME_BYTES_MAX, SCHEMA_BYTES_MAX};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:expr, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(String);

        impl $name {
            /// Checks `text`: not empty, no NUL, not over the documented length in bytes.
            ///
            /// # Errors
            /// Names the field and what is wrong with it.
            pub fn new(text: &str) -> Result<Self, UserError> {
                check(text, $field, $max).map(|()| Self(text.to_owned()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A queue's name: 1 to 200 bytes of UTF-8.
    QueueName, Field::Queue, NAME_BYTES_MAX
}
name! {
    /// What a job is for; handlers are registered by it. 1 to 200 bytes of UTF-8.
    Kind, Field::Kind, NAME_BYTES_MAX
}
name! {
    /// The schema that holds one installation: any legal PostgreSQL identifier up to 63 bytes.
    SchemaName, Field::Schema, SCHEMA_BYTES_MAX
}

fn check(text: &str, field: Field, max: usize) -> Result<(), UserError> {
    if text.is_empty() {
        Err(UserError::Empty { field })
    } else if text.contains('\0') {
        Err(UserError::Nul { field })
    } else if text.len() > max {
        Err(UserError::TooLong { field, bytes: text.len(), max })
    } else {
        Ok(())
    }
}
