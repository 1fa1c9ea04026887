//! The schema of Awa as numbered, checksummed SQL. Data only: `awa-driver` applies it.
//!
//! A file in `sql/` names the schema by placeholders: `{schema}` (a quoted identifier),
//! `{schema_name}` (a string literal of the bare name), `{position_seq}` (the sequence as a
//! `regclass` literal) and `{quote}` (a dollar quote that the name can't end).

use sha2::{Digest, Sha256};

/// One step of the schema's history. Never edited once released: a later one amends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The number of the design record that it follows; ascending.
    pub version: u32,
    /// What it brings, in a few words.
    pub name: &'static str,
    template: &'static str,
}

/// All migrations, oldest first.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 26,
        name: "narrow terminal history",
        template: include_str!("../sql/v026.sql"),
    },
    Migration {
        version: 32,
        name: "pruned_failed_count",
        template: include_str!("../sql/v032.sql"),
    },
];

/// The version that this build needs.
pub const LATEST: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The oldest server that the schema works on, as `server_version_num`.
pub const SERVER_VERSION_MIN: i32 = 140_000;

impl Migration {
    /// SHA-256 of the file, in hex: the same for every schema's name.
    #[must_use]
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.template.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The statements for the schema called `schema`.
    #[must_use]
    pub fn sql(&self, schema: &str) -> String {
        spell(self.template, schema)
    }

    /// The statement that records that this migration was applied.
    #[must_use]
    pub fn record(&self, schema: &str) -> String {
        let filled = include_str!("../sql/record.sql")
            .replace("{version}", &self.version.to_string())
            .replace("{name}", self.name)
            .replace("{checksum}", &self.checksum());
        spell(&filled, schema)
    }
}

/// Waits until no other migration of this schema runs, for the rest of the transaction.
#[must_use]
pub fn lock(schema: &str) -> String {
    spell(include_str!("../sql/lock.sql"), schema)
}

/// Asks for: server version number, does the schema exist, does it hold an installation.
#[must_use]
pub fn installed(schema: &str) -> String {
    spell(include_str!("../sql/installed.sql"), schema)
}

/// Asks for what was applied: version, checksum.
#[must_use]
pub fn applied(schema: &str) -> String {
    spell(include_str!("../sql/applied.sql"), schema)
}

/// Makes the schema itself.
#[must_use]
pub fn create_schema(schema: &str) -> String {
    spell(include_str!("../sql/create_schema.sql"), schema)
}

/// Makes the table that records what was applied.
#[must_use]
pub fn bootstrap(schema: &str) -> String {
    spell(include_str!("../sql/bootstrap.sql"), schema)
}

/// Drops the schema with all that is in it.
#[must_use]
pub fn drop_schema(schema: &str) -> String {
    spell(include_str!("../sql/drop.sql"), schema)
}

/// Everything that a migration of an empty database runs, as one script for `psql` or a reviewer.
#[must_use]
pub fn script(schema: &str) -> String {
    let mut parts =
        vec!["begin".to_owned(), lock(schema), create_schema(schema), bootstrap(schema)];
    for migration in MIGRATIONS {
        parts.push(format!(
            "-- v{:03}: {}\n{}",
            migration.version,
            migration.name,
            migration.sql(schema)
        ));
        parts.push(migration.record(schema));
    }
    parts.push("commit".to_owned());
    parts.iter().fold(String::new(), |mut text, part| {
        let part = part.trim_end();
        text.push_str(part);
        text.push_str(if part.ends_with(';') { "\n\n" } else { ";\n\n" });
        text
    })
}

/// Replaces the placeholders in one pass, so that a name which looks like one stays a name.
fn spell(template: &str, schema: &str) -> String {
    let ident = quoted(schema);
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let value = after.split_once('}').and_then(|(word, tail)| {
            let value = match word {
                "schema" => ident.clone(),
                "schema_name" => literal(schema),
                "schema_literal" => literal(&ident),
                "table_literal" => literal(&format!("{ident}.schema_migrations")),
                "position_seq" => {
                    format!("{}::pg_catalog.regclass", literal(&format!("{ident}.position_seq")))
                }
                "quote" => dollar_quote(schema),
                _ => return None,
            };
            Some((value, tail))
        });
        match value {
            Some((value, tail)) => {
                text.push_str(&value);
                rest = tail;
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// A dollar quote that doesn't occur in `name`, so that the name can't end the text it stands in.
fn dollar_quote(name: &str) -> String {
    let tags = (0_u32..).map(|n| format!("$awa{n}$"));
    tags.into_iter().find(|tag| !name.contains(tag.as_str())).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_ascend() {
        assert!(MIGRATIONS.is_sorted_by_key(|m| m.version));
        assert_eq!(LATEST, 32);
    }

    #[test]
    fn a_name_that_looks_like_a_placeholder_stays_a_name() {
        let text = script("{quote}");
        assert!(text.contains("create schema \"{quote}\";"));
        assert!(text.contains("do $awa0$"));
    }

    #[test]
    fn a_name_cannot_end_a_body() {
        assert!(script("$awa0$").contains("do $awa1$"));
    }

    #[test]
    fn a_name_is_quoted_in_every_place() {
        let text = script("a\"b'c");
        assert!(text.contains("create schema \"a\"\"b'c\";"));
        assert!(text.contains("'\"a\"\"b''c\".position_seq'::pg_catalog.regclass"));
        assert!(text.contains("create view \"a\"\"b'c\".terminal_jobs"));
    }

    /// A released file is never edited: a change here breaks installations that have applied it.
    #[test]
    fn checksums_are_those_released() {
        let sums: Vec<_> = MIGRATIONS.iter().map(|m| (m.version, m.checksum())).collect();
        let released = include_str!("../sql/released.sha256");
        let expected: Vec<_> = released
            .lines()
            .filter_map(|line| line.split_once("  v"))
            .map(|(sum, file)| (file.trim_end_matches(".sql").parse().unwrap(), sum.to_owned()))
            .collect();
        assert_eq!(sums, expected);
    }
}
