//! Spelling a schema, a slot and shared fragments into a statement's text.

use awa_core::SchemaName;

/// The text of one `.sql` file, or of a leaf that several share.
#[derive(Clone, Copy, Debug)]
pub struct Template(pub &'static str);

/// Fragments that more than one statement uses, by the name that stands in braces.
const LEAVES: &[(&str, &str)] = &[
    ("is_carried", include_str!("../sql/leaf/is_carried.sql")),
    ("counter_bucket", include_str!("../sql/leaf/counter_bucket.sql")),
    ("open_receipts", include_str!("../sql/leaf/open_receipts.sql")),
    ("lane_key", include_str!("../sql/leaf/lane_key.sql")),
];

impl Template {
    /// The text with leaves, then `{schema}` (quoted) and, where given, `{slot}` filled in.
    /// Comment lines are left out: the server need not parse them.
    #[must_use]
    pub fn spell(self, schema: &SchemaName, slot: Option<i32>) -> String {
        let mut text = without_comments(self.0);
        for (name, leaf) in LEAVES {
            text = text.replace(&format!("{{{name}}}"), without_comments(leaf).trim_end());
        }
        if let Some(slot) = slot {
            text = text.replace("{slot}", &slot.to_string());
        }
        let class = fence_class(schema);
        text.replace("{lock_class}", &class.to_string())
            .replace("{schema_name}", &quoted_literal(schema.as_str()))
            .replace("{schema}", &quoted(schema.as_str()))
    }
}

/// The first key of every advisory lock of the installation: one number a schema, so that two
/// installations in one database wait for one another only by a rare collision.
fn fence_class(schema: &SchemaName) -> i32 {
    // FNV-1a, 32 bits.
    let hash = schema.as_str().bytes().fold(0x811c_9dc5_u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    hash.cast_signed()
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.trim_start().starts_with("--"));
    lines.fold(String::new(), |mut out, line| {
        out.push_str(line);
        out.push('\n');
        out
    })
}

/// `name` as a quoted identifier.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a string literal that means the same whatever `standard_conforming_strings` says.
#[must_use]
pub fn quoted_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}
