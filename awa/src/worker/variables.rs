//! What the environment says of how the ends of attempts are gathered (`R026-31`).

use std::ffi::OsString;
use std::num::{NonZeroU16, NonZeroUsize};

use awa_driver::core::Span;
use awa_driver::core::fault::UserError;
use awa_driver::core::limits;
use awa_driver::core::runtime::batcher::BatcherSettings;

const BATCH_SIZE: &str = "AWA_COMPLETION_BATCH_SIZE";
const FLUSH_MS: &str = "AWA_COMPLETION_FLUSH_MS";
const SHARDS: &str = "AWA_COMPLETION_SHARDS";

/// An end that is not stored holds its attempt open; it may not wait for longer than a shutdown would.
const FLUSH_MS_MAX: i64 = 10_000;
/// Each shard is a connection at work.
const FLUSHERS_MAX: i64 = 64;

/// The settings that `lookup` knows, which is asked by the variables' names.
///
/// # Errors
/// [`UserError::Variable`] for the first that is set to anything but a whole number in its range.
pub(super) fn batching(
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<BatcherSettings, UserError> {
    let number = |name: &str, min: i64, max: i64| {
        let Some(text) = lookup(name) else { return Ok(None) };
        let number = text.to_str().and_then(|text| text.trim().parse().ok());
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (name, value) = (name.to_owned(), text.to_string_lossy().into_owned());
                Err(UserError::Variable { name, value, min, max })
            }
        }
    };
    let rows = number(BATCH_SIZE, 1, limits::CLAIM_ROWS_MAX.into())?;
    let ms = number(FLUSH_MS, 0, FLUSH_MS_MAX)?;
    let shards = number(SHARDS, 1, FLUSHERS_MAX)?;
    // All are in range, so no conversion loses anything.
    Ok(BatcherSettings {
        shards: shards.and_then(|n| NonZeroU16::new(n as u16)),
        flush_rows: rows.and_then(|n| NonZeroUsize::new(n as usize)),
        flush_age: ms.map(|ms| Span::from_ms(ms.unsigned_abs())),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use awa_driver::core::runtime::batcher::BatcherConfig;

    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<BatcherSettings, UserError> {
        let known = |name: &str| variables.iter().find(|(known, _)| *known == name);
        batching(|name| known(name).map(|(_, value)| (*value).into()))
    }

    /// R026-31: what is not set is as by default.
    #[test]
    fn an_empty_environment_means_the_defaults() {
        let none = with(&[("AWA_COMPLETION", "9"), ("PATH", "/bin")]).unwrap();
        assert_eq!(none, BatcherSettings::default());
        for (workers, shards) in [(511, 1), (512, 4)] {
            let config = BatcherConfig::told(none, workers, 7);
            assert_eq!(config, BatcherConfig::for_workers(workers, 7));
            assert_eq!((config.flush_rows.get(), config.flush_age), (512, Span::from_ms(1)));
            assert_eq!(config.shards.get(), shards);
        }
    }

    /// R026-31: each variable is taken for what it says, and the batcher has room for it.
    #[test]
    fn what_is_set_is_taken() {
        let set = [(BATCH_SIZE, "4096"), (FLUSH_MS, "0"), (SHARDS, " 64 ")];
        let config = BatcherConfig::told(with(&set).unwrap(), 1, 7);
        assert_eq!((config.flush_rows.get(), config.flush_age), (4096, Span::ZERO));
        assert_eq!((config.shards.get(), config.held_max.get()), (64, 2 * 64 * 4096));
        let one = BatcherConfig::told(with(&[(SHARDS, "1")]).unwrap(), 1024, 7);
        assert_eq!((one.shards.get(), one.flush_rows.get(), one.held_max.get()), (1, 512, 2048));
        let slow = BatcherConfig::told(with(&[(FLUSH_MS, "10000")]).unwrap(), 1, 7);
        assert_eq!((slow.flush_age, slow.shards.get()), (Span::from_secs(10), 1));
    }

    /// R026-31: anything else is refused, and the variable named.
    #[test]
    fn a_bad_value_is_refused_by_the_variables_name() {
        let (rows, ms, shards) = ((BATCH_SIZE, 1, 4096), (FLUSH_MS, 0, 10_000), (SHARDS, 1, 64));
        for ((name, min, max), value) in [
            (rows, "0"),
            (rows, "4097"),
            (rows, ""),
            (rows, "12 rows"),
            (ms, "-1"),
            (ms, "1.5"),
            (ms, "10001"),
            (shards, "0"),
            (shards, "65"),
            (shards, "99999999999999999999"),
        ] {
            let refused = with(&[(name, value)]).unwrap_err();
            let (name, value) = (name.to_owned(), value.to_owned());
            assert_eq!(refused, UserError::Variable { name, value, min, max });
        }
        assert_eq!(
            with(&[(BATCH_SIZE, "many")]).unwrap_err().to_string(),
            "AWA_COMPLETION_BATCH_SIZE is set to \"many\"; it must be a whole number between 1 and 4096"
        );
    }
}
