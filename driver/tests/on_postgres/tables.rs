//! The tables as the catalog lists them, and what the harness does to all of them.

use awa_core::{SchemaName, Span};
use awa_driver::tokio_postgres::Client;
use awa_model_tests::history::Rings;

/// Tables that the World doesn't show: no step writes the first, no step knows the second.
const LEFT_OUT: [&str; 2] = ["lease_claims", "schema_migrations"];

struct Table {
    /// Quoted, with its schema.
    name: String,
    plain: String,
    /// Columns of time, and arrays of time.
    times: Vec<String>,
    arrays: Vec<String>,
}

/// The tables of an installation.
pub(super) struct Tables {
    schema: String,
    all: Vec<Table>,
    /// A query whose rows are the lines of a dump, in any order.
    pub(super) dump: String,
}

impl Tables {
    pub(super) async fn of(client: &Client, schema: &SchemaName) -> Self {
        let columns = "select c.relname::text, a.attname::text, format_type(a.atttypid, null) \
             from pg_class c join pg_attribute a on a.attrelid = c.oid \
             where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p') \
             and not c.relispartition and a.attnum > 0 and not a.attisdropped \
             order by c.relname, a.attname";
        let schema = format!("\"{}\"", schema.as_str());
        let rows = client.query(columns, &[&schema]).await.unwrap();
        let mut all: Vec<Table> = Vec::new();
        for row in rows {
            let (table, column, kind): (String, String, String) =
                (row.get(0), row.get(1), row.get(2));
            if LEFT_OUT.contains(&table.as_str()) {
                continue;
            }
            if all.last().is_none_or(|last| last.plain != table) {
                let name = format!("{schema}.{table}");
                all.push(Table { name, plain: table, times: Vec::new(), arrays: Vec::new() });
            }
            let last = all.last_mut().unwrap();
            match kind.as_str() {
                "timestamp with time zone" => last.times.push(column),
                "timestamp with time zone[]" => last.arrays.push(column),
                _ => {}
            }
        }
        let dump: Vec<String> = all.iter().map(Table::dump).collect();
        Self { schema, dump: dump.join(" union all "), all }
    }

    /// As after the migration, with rings of these sizes: children beyond are left unused.
    pub(super) fn reset(&self, rings: Rings) -> String {
        let s = &self.schema;
        let mut script = String::from("begin;");
        let is_ring = |t: &&Table| t.plain.contains("_ring_") || t.plain == "terminal_count_trust";
        for table in self.all.iter().filter(|t| !is_ring(t) && t.plain != "queues") {
            script += &format!("delete from {};", table.name);
        }
        script += &format!(
            "delete from {s}.queues; update {s}.terminal_count_trust set trusted = true;\
             alter sequence {s}.position_seq restart;\
             alter sequence {s}.lease_claim_receipt_id_seq restart;\
             alter table {s}.queue_lanes alter column lane_id restart;"
        );
        let sizes = [("queue", rings.queue), ("lease", rings.lease), ("claim", rings.claim)];
        for (ring, slots) in sizes {
            script += &format!(
                "update {s}.{ring}_ring_state set current_slot = 0, generation = 1, \
                 slot_count = {slots};\
                 delete from {s}.{ring}_ring_slots;\
                 insert into {s}.{ring}_ring_slots (slot, generation, state) \
                 select n, (n = 0)::int, case n when 0 then 'open' else 'pruned' end \
                 from generate_series(0, {slots} - 1) as n;"
            );
        }
        script + "commit"
    }

    /// Every stored instant moves back.
    pub(super) fn shift(&self, by: Span) -> String {
        let by = format!("interval '{} microseconds'", by.us());
        let mut script = String::new();
        for table in self.all.iter().filter(|t| !t.times.is_empty() || !t.arrays.is_empty()) {
            let times = table.times.iter().map(|c| format!("{c} = {c} - {by}"));
            let arrays = table.arrays.iter().map(|c| {
                format!("{c} = array(select t - {by} from unnest({c}) with ordinality as u (t, n) order by n)")
            });
            let set: Vec<String> = times.chain(arrays).collect();
            script += &format!("update {} set {};", table.name, set.join(", "));
        }
        script
    }
}

impl Table {
    fn dump(&self) -> String {
        let times: Vec<String> =
            self.times.iter().chain(&self.arrays).map(|c| format!("'{c}'")).collect();
        let timed = if times.is_empty() {
            "false".to_owned()
        } else {
            format!("key in ({})", times.join(", "))
        };
        format!(
            "select '{}: ' || (select string_agg(key || '=' || case \
             when value is null then 'null' when {timed} then 'set' \
             when key = 'payload' then regexp_replace(value, '\"at\": (\"[^\"]*\"|[0-9.]+)', '\"at\": \"set\"', 'g') \
             else value end, ' ' order by key collate \"C\") from jsonb_each_text(to_jsonb(t))) \
             from {} t",
            self.plain, self.name
        )
    }
}
