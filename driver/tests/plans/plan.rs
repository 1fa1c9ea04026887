//! What of a plan must stay, in a form that all versions of PostgreSQL share.

use std::collections::BTreeMap;

use serde_json::Value;

/// A statement that was run.
#[derive(Debug)]
pub(crate) struct Executed {
    /// The name of its `.sql` file.
    pub(crate) step: String,
    /// The root of its plan, with what each node did.
    pub(crate) plan: Value,
    /// Whether it was compiled (JIT).
    pub(crate) compiled: bool,
    /// How long each planning for this run took; none if a kept plan was run.
    pub(crate) planning_ms: Vec<f64>,
    /// How long it ran.
    pub(crate) ms: f64,
}

/// How a statement comes to the rows of one table, in one place of its text. Which of the ways through
/// an index it is (plain, index-only, bitmap) is the planner's guess of sizes and left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Access {
    /// The WITH query that it is part of; empty for the statement's own level.
    pub(crate) within: String,
    /// `index`, `whole` for a sequential scan, `place` for a TID scan, or what is done to the table.
    pub(crate) how: String,
    /// The table, with `*` for the slot of a ring's child.
    pub(crate) table: String,
    /// The index, likewise.
    pub(crate) index: String,
    /// What is looked up in the index.
    pub(crate) condition: String,
    /// What is looked at in each row that was found.
    pub(crate) filter: String,
}

/// What an access did, over all children.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Did {
    /// Children in the plan.
    pub(crate) planned: i64,
    /// Children that were gone to.
    pub(crate) touched: i64,
    /// Rows that the filter threw away.
    pub(crate) removed: i64,
    /// Blocks that were read, cached or not.
    pub(crate) blocks: i64,
}

impl Executed {
    /// Blocks that the statement read, cached or not, those of writing rows included.
    pub(crate) fn blocks(&self) -> i64 {
        blocks(&self.plan)
    }

    /// Every access to a table.
    pub(crate) fn accesses(&self) -> BTreeMap<Access, Did> {
        let mut found = BTreeMap::new();
        gather(&self.plan, "", &mut found);
        found
    }

    /// All nodes of the plan.
    pub(crate) fn nodes(&self) -> Vec<&Value> {
        let mut nodes = vec![&self.plan];
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            nodes.extend(children(node));
            at += 1;
        }
        nodes
    }
}

/// A relation's name with `*` for the slot of a ring's child.
pub(crate) fn of_any_slot(name: &str) -> String {
    let mut parts: Vec<&str> = name.split('_').collect();
    if let Some(slot) = parts.iter_mut().find(|part| part.parse::<u8>().is_ok()) {
        *slot = "*";
    }
    parts.join("_")
}

/// Rows that a node gave or met, over all its loops.
pub(crate) fn rows(node: &Value, name: &str) -> i64 {
    (number(node, name) * number(node, "Actual Loops")).round() as i64
}

fn text(node: &Value, name: &str) -> String {
    node[name].as_str().unwrap_or_default().to_owned()
}

fn number(node: &Value, name: &str) -> f64 {
    node[name].as_f64().unwrap_or(0.0)
}

fn blocks(node: &Value) -> i64 {
    (number(node, "Shared Hit Blocks") + number(node, "Shared Read Blocks")) as i64
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

fn gather(node: &Value, within: &str, found: &mut BTreeMap<Access, Did>) {
    let named = text(node, "Subplan Name");
    let within = named.strip_prefix("CTE ").unwrap_or(within);
    if !node["Relation Name"].is_null() {
        let bitmap = children(node).find(|child| child["Node Type"] == "Bitmap Index Scan");
        let by = bitmap.unwrap_or(node);
        let access = Access {
            within: within.to_owned(),
            how: how(node),
            table: of_any_slot(&text(node, "Relation Name")),
            index: of_any_slot(&text(by, "Index Name")),
            condition: looked_up(&tidy(&text(by, "Index Cond"))),
            filter: tidy(&text(node, "Filter")),
        };
        let did = found.entry(access).or_default();
        did.planned += 1;
        did.touched += i64::from(number(node, "Actual Loops") > 0.0);
        did.removed += rows(node, "Rows Removed by Filter");
        did.blocks += blocks(node);
    }
    for child in children(node) {
        gather(child, within, found);
    }
}

fn how(node: &Value) -> String {
    match text(node, "Node Type").as_str() {
        "ModifyTable" => text(node, "Operation").to_lowercase(),
        "Seq Scan" => "whole".to_owned(),
        "Tid Scan" => "place".to_owned(),
        "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan" => "index".to_owned(),
        other => other.to_owned(),
    }
}

/// A condition without the numbers that tell tables, parameters and subplans apart: `r_12.` becomes
/// `r.`; `$12` and `(InitPlan 12).col1`, which is how newer versions spell it, become `$`, and so does
/// what a plan for certain parameters has in a parameter's place, and what is kept from the planner.
fn tidy(condition: &str) -> String {
    let condition = without_hidden(&condition.replace("'mail'::text", "$"));
    let mut parts = condition.split("(InitPlan ");
    let mut spelled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part.split_once(").col").map_or(part, |(_, rest)| rest);
        spelled.push('$');
        spelled.push_str(after.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    let mut tidy = String::new();
    let mut rest = spelled.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '.' {
            let name = tidy.trim_end_matches(|d: char| d.is_ascii_digit()).to_owned();
            if let Some(name) = name.strip_suffix('_') {
                tidy = name.to_owned();
            }
        }
        tidy.push(c);
        if c == '$' {
            while rest.next_if(char::is_ascii_digit).is_some() {}
        }
    }
    without_numbers(&tidy)
}

/// `CASE WHEN (now() IS NULL) THEN 0 ELSE 12 END` becomes `$`.
fn without_hidden(condition: &str) -> String {
    let mut parts = condition.split("CASE WHEN (now() IS NULL) THEN 0 ELSE ");
    let mut spelled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        spelled.push('$');
        spelled.push_str(part.split_once(" END").map_or(part, |(_, rest)| rest));
    }
    spelled
}

/// `'12'::bigint` becomes `$`.
fn without_numbers(condition: &str) -> String {
    let mut parts = condition.split("'::bigint");
    let mut spelled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let literal = spelled.rfind('\'').map(|at| spelled.split_off(at)).unwrap_or_default();
        let is_number = literal.len() > 1 && literal[1..].chars().all(|c| c.is_ascii_digit());
        spelled.push_str(&if is_number { "$".to_owned() } else { format!("{literal}'::bigint") });
        spelled.push_str(part);
    }
    spelled
}

/// The columns of an index condition with what each is compared to, if that has a name.
fn looked_up(condition: &str) -> String {
    let clauses = condition.split(" AND ").map(|clause| {
        let clause = clause.trim_start_matches('(');
        let mut words = clause.splitn(3, ' ');
        let column = words.next().unwrap_or_default();
        let (Some(operator), Some(operand)) = (words.next(), words.next()) else {
            return column.to_owned();
        };
        let operand = operand.trim_end_matches(')');
        let is_named = operand.chars().all(|c| c.is_alphanumeric() || "._$".contains(c));
        format!("{column} {operator} {}", if is_named { operand } else { ".." })
    });
    clauses.collect::<Vec<_>>().join(", ")
}
