//! Values as PostgreSQL's binary protocol wants them.

use std::error::Error;

use awa_core::Instant;
use bytes::{BufMut, BytesMut};
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The parameters of one statement, in order.
pub type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// Microseconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH_US: i64 = 946_684_800_000_000;

/// An instant as `timestamptz`, exact to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamptz(pub Instant);

impl ToSql for Timestamptz {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0.unix_us() - EPOCH_US);
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Timestamptz {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let us = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Instant::from_unix_us(us.saturating_add(EPOCH_US))))
    }
    accepts!(TIMESTAMPTZ);
}

/// JSON text as `jsonb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(pub String);

/// The only version of `jsonb`'s binary form.
const JSONB_VERSION: u8 = 1;

impl ToSql for Json {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u8(JSONB_VERSION);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
    accepts!(JSONB);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match raw.split_first() {
            Some((&JSONB_VERSION, text)) => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("unknown version of jsonb".into()),
        }
    }
    accepts!(JSONB);
}
