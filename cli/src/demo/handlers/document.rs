//! Small documents in three formats, and the sum of one field.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::hundredths::Hundredths;

/// What a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Rows of fields between commas, the first row naming them; quotes as in RFC 4180.
    Csv,
    /// `key = value` under `[section]`s; `;` and `#` begin comments.
    Ini,
    /// An array of objects.
    Json,
}

/// The sum of every value of `field` in the document.
///
/// # Errors
/// `malformed document`, with the line, the row or the item; `missing field` if no value has that
/// name.
pub(super) fn sum(format: Format, document: &str, field: &str) -> Result<Hundredths, String> {
    let values = match format {
        Format::Csv => csv_values(document, field),
        Format::Ini => ini_values(document, field),
        Format::Json => json_values(document, field),
    }?;
    if values.is_empty() {
        return Err(format!("missing field: no {field:?} in the document"));
    }
    let mut total = Hundredths::default();
    for (place, text) in values {
        let value = Hundredths::parse(&text)
            .ok_or_else(|| malformed(&format!("{place}: {text:?} is no amount")))?;
        total = total.plus(value).ok_or_else(|| malformed(&format!("{place}: sum too large")))?;
    }
    Ok(total)
}

/// Where a value stands, and its text.
type Values = Vec<(String, String)>;

fn malformed(what: &str) -> String {
    format!("malformed document: {what}")
}

fn csv_values(document: &str, field: &str) -> Result<Values, String> {
    let mut rows = csv_rows(document)?.into_iter();
    let header = rows.next().ok_or_else(|| malformed("it is empty"))?;
    let column = header.iter().position(|name| name == field);
    let mut values = Vec::new();
    for (index, mut row) in rows.enumerate() {
        let place = format!("row {}", index + 2);
        if row.len() != header.len() {
            let (has, wants) = (row.len(), header.len());
            return Err(malformed(&format!("{place}: field count {has}, the header's is {wants}")));
        }
        values.extend(column.map(|column| (place, row.swap_remove(column))));
    }
    Ok(values)
}

/// Rows of fields. A field in quotes may hold commas, line feeds and doubled quotes.
fn csv_rows(document: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut rest = document;
    while !rest.is_empty() {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => csv_quoted(quoted, rows.len() + 1)?,
            None => {
                let end = rest.find([',', '\n']).unwrap_or(rest.len());
                (rest[..end].trim_end_matches('\r').to_owned(), &rest[end..])
            }
        };
        row.push(field);
        let row_goes_on = after.starts_with(',');
        if row_goes_on && after.len() == 1 {
            row.push(String::new());
        }
        if !row_goes_on || after.len() == 1 {
            rows.push(std::mem::take(&mut row));
        }
        rest = after.get(1..).unwrap_or("");
    }
    Ok(rows)
}

/// The field whose opening quote stands before `text`, and what follows its closing one.
fn csv_quoted(text: &str, row: usize) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err(malformed(&format!("row {row}: a quote is never closed")));
        };
        field.push_str(part);
        if let Some(doubled) = after.strip_prefix('"') {
            field.push('"');
            rest = doubled;
            continue;
        }
        let after = after.strip_prefix('\r').unwrap_or(after);
        if after.is_empty() || after.starts_with([',', '\n']) {
            return Ok((field, after));
        }
        return Err(malformed(&format!("row {row}: text behind a closing quote")));
    }
}

fn ini_values(document: &str, field: &str) -> Result<Values, String> {
    let mut values = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let (place, line) = (format!("line {}", index + 1), line.trim());
        let is_section = line.starts_with('[') && line.ends_with(']');
        if line.is_empty() || line.starts_with([';', '#']) || is_section {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(malformed(&format!("{place}: neither section nor key = value")));
        };
        if key.trim() == field {
            values.push((place, value.trim().to_owned()));
        }
    }
    Ok(values)
}

fn json_values(document: &str, field: &str) -> Result<Values, String> {
    // Raw text, so that an amount is read as it is spelt and not by way of a binary fraction.
    let rows: Vec<BTreeMap<String, Box<RawValue>>> =
        serde_json::from_str(document).map_err(|error| malformed(&error.to_string()))?;
    let values = rows.iter().enumerate().filter_map(|(index, row)| {
        let value = row.get(field)?;
        Some((format!("item {}", index + 1), value.get().to_owned()))
    });
    Ok(values.collect())
}
