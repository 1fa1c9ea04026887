//! Spelling a schema, a slot and shared fragments into a statement's text.

use awa_core::SchemaName;

/// The text of one `.sql` file, or of a leaf that several share.
#[derive(Clone, Copy, Debug)]
pub struct Template(pub &'static str);

/// Fragments that more than one statement uses, by the name that stands in braces. One that names
/// another stands before it.
const LEAVES: &[(&str, &str)] = &[
    ("job_place", include_str!("../sql/leaf/job_place.sql")),
    ("unclaimed", include_str!("../sql/leaf/unclaimed.sql")),
    ("wanted_rows", include_str!("../sql/leaf/wanted_rows.sql")),
    ("append_removed", include_str!("../sql/leaf/append_removed.sql")),
    ("take_locks", include_str!("../sql/leaf/take_locks.sql")),
    ("truncate_filled", include_str!("../sql/leaf/truncate_filled.sql")),
    ("is_carried", include_str!("../sql/leaf/is_carried.sql")),
    ("counter_bucket", include_str!("../sql/leaf/counter_bucket.sql")),
    ("open_of_lanes", include_str!("../sql/leaf/open_of_lanes.sql")),
    ("open_receipts", include_str!("../sql/leaf/open_receipts.sql")),
    ("unproved", include_str!("../sql/leaf/unproved.sql")),
    ("batch_of_receipt", include_str!("../sql/leaf/batch_of_receipt.sql")),
    ("spent_above", include_str!("../sql/leaf/spent_above.sql")),
    ("stretches", include_str!("../sql/leaf/stretches.sql")),
    ("clock", include_str!("../sql/leaf/clock.sql")),
    ("clock_after", include_str!("../sql/leaf/clock_after.sql")),
    ("window_low", include_str!("../sql/leaf/window_low.sql")),
    ("ready_first", include_str!("../sql/leaf/ready_first.sql")),
    ("named_claims", include_str!("../sql/leaf/named_claims.sql")),
    ("between_named", include_str!("../sql/leaf/between_named.sql")),
    ("proved", include_str!("../sql/leaf/proved.sql")),
    ("held", include_str!("../sql/leaf/held.sql")),
    ("released", include_str!("../sql/leaf/released.sql")),
    ("forgotten", include_str!("../sql/leaf/forgotten.sql")),
];

impl Template {
    /// The text with leaves, then `{schema}` (quoted) and, where given, `{slot}` filled in.
    /// Comment lines are left out: the server need not parse them.
    #[must_use]
    pub fn spell(self, schema: &SchemaName, slot: Option<i32>) -> String {
        let slot = slot.map(|slot| slot.to_string());
        let words: Vec<_> = slot.iter().map(|slot| ("slot", slot.as_str())).collect();
        self.spell_with(schema, &words)
    }

    /// The same with `words` for what else the text names in braces.
    #[must_use]
    pub fn spell_with(self, schema: &SchemaName, words: &[(&str, &str)]) -> String {
        let mut text = without_comments(self.0);
        for (name, leaf) in LEAVES {
            text = text.replace(&format!("{{{name}}}"), without_comments(leaf).trim_end());
        }
        let own = |word: &str| {
            let given = words.iter().find(|(name, _)| *name == word);
            given.map(|(_, value)| (*value).to_owned()).or_else(|| schema_word(schema, word))
        };
        filled(&text, own)
    }
}

/// What `word` stands for in every statement of the installation in `schema`.
fn schema_word(schema: &SchemaName, word: &str) -> Option<String> {
    let name = schema.as_str();
    Some(match word {
        "schema" => quoted(name),
        "schema_name" => quoted_literal(name),
        "lock_class" => fence_class(schema).to_string(),
        "position_seq" => {
            let seq = quoted_literal(&format!("{}.position_seq", quoted(name)));
            format!("{seq}::pg_catalog.regclass")
        }
        "receipt_seq" => {
            let seq = quoted_literal(&format!("{}.lease_claim_receipt_id_seq", quoted(name)));
            format!("{seq}::pg_catalog.regclass")
        }
        "quote" => dollar_quote(name),
        _ => return None,
    })
}

/// `text` with each word in braces that `value` knows replaced, in one pass: what was filled in is
/// not looked at again, so that a schema called `{slot}` stays a name.
fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let known = after.split_once('}').and_then(|(word, tail)| Some((value(word)?, tail)));
        if let Some((value, tail)) = known {
            out.push_str(&value);
            rest = tail;
        } else {
            out.push('{');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// A dollar quote that doesn't occur in `name`, so that the name can't end the text it stands in.
fn dollar_quote(name: &str) -> String {
    let mut tag = "$awa$".to_owned();
    while name.contains(&tag) {
        tag.insert(1, 'q');
    }
    tag
}

/// The first key of every advisory lock of the installation: one number a schema, so that two
/// installations in one database wait for one another only by a rare collision.
fn fence_class(schema: &SchemaName) -> i32 {
    // FNV-1a, 32 bits.
    let hash = schema
        .as_str()
        .bytes()
        .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
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
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a string literal that means the same whatever `standard_conforming_strings` says.
#[must_use]
pub(crate) fn quoted_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}
