//! The demo's handlers: pure functions whose result can be checked.
//!
//! Each takes its job's args and gives `Ok(())`, or an error whose first words name what is wrong:
//! `demo/EXPECTED.json` lists the lines of `demo/jobs.ndjson` that must fail by those words. The
//! same args always give the same answer, so a job that failed here fails again.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

mod document;
mod hundredths;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use document::Format;
use hundredths::Hundredths;

/// A text and the SHA-256 that it should have: args of kind `digest`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Digest {
    /// The text; its UTF-8 is digested.
    pub(crate) text: String,
    /// The digest in hexadecimal, 64 digits of either case.
    pub(crate) sha256: String,
}

/// A small document and the sum of one of its fields: args of kind `parse`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parse {
    /// What the document is written in.
    pub(crate) format: Format,
    /// The document.
    pub(crate) document: String,
    /// The name of the field whose values are summed.
    pub(crate) field: String,
    /// The sum that it should have, with at most two decimals.
    pub(crate) sum: String,
}

/// A template, its variables and the text that should come of them: args of kind `render`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Render {
    /// Text with placeholders like `{{name}}`; blanks inside the braces don't matter.
    pub(crate) template: String,
    /// What stands for each name.
    pub(crate) vars: BTreeMap<String, String>,
    /// The text that it should give.
    pub(crate) expect: String,
}

/// Digests the text.
///
/// # Errors
/// `digest mismatch`.
pub(crate) fn digest(args: &Digest) -> Result<(), String> {
    let bytes = Sha256::digest(args.text.as_bytes());
    let computed: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if computed.eq_ignore_ascii_case(&args.sha256) {
        return Ok(());
    }
    Err(format!("digest mismatch: the text has {computed}, the job says {}", args.sha256))
}

/// Parses the document and sums the field.
///
/// # Errors
/// `malformed document` with the line, `missing field`, `malformed sum`, or `sum mismatch`.
pub(crate) fn parse(args: &Parse) -> Result<(), String> {
    let wanted = Hundredths::parse(&args.sum)
        .ok_or_else(|| format!("malformed sum: {:?} is no amount", args.sum))?;
    let computed = document::sum(args.format, &args.document, &args.field)?;
    if computed == wanted {
        return Ok(());
    }
    Err(format!("sum mismatch: the document has {computed}, the job says {wanted}"))
}

/// Renders the template.
///
/// # Errors
/// `malformed template`, `missing variable` with its name, or `render mismatch` with the first
/// character that differs.
pub(crate) fn render(args: &Render) -> Result<(), String> {
    let rendered = template::render(&args.template, &args.vars)?;
    if rendered == args.expect {
        return Ok(());
    }
    let pairs = rendered.chars().zip(args.expect.chars());
    let alike = pairs.take_while(|(got, wanted)| got == wanted).count();
    let excerpt = |text: &str| text.chars().skip(alike).take(20).collect::<String>();
    let (got, wanted) = (excerpt(&rendered), excerpt(&args.expect));
    let at = alike + 1;
    Err(format!("render mismatch: character {at} begins {got:?}, the job says {wanted:?}"))
}
