//! The text of a file, and where in it an error is.

use super::error::{ConfigError, Place, Problem};

/// The text, to find places in.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn place(&self, offset: usize) -> Place {
        Place::at(self.text, offset)
    }

    pub(super) fn error(&self, problem: Problem) -> ConfigError {
        ConfigError {
            file: self.file.to_owned(),
            place: Some(self.place(problem.span.start)),
            key: Some(problem.key),
            problem: problem.text,
        }
    }

    /// An error of the TOML parser or of serde, in our words.
    pub(super) fn toml_error(&self, error: &toml::de::Error) -> ConfigError {
        let start = error.span().map(|span| span.start);
        let message = error.message();
        let path = start.and_then(|start| key_path(self.text, start));
        let within = |key: &str| match &path {
            Some(path) => format!("{path}.{key}"),
            None => key.to_owned(),
        };
        let quoted = || message.split('`').nth(1).unwrap_or_default();
        let (key, problem) = if message.starts_with("unknown field") {
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            let key = path.clone().unwrap_or_else(|| quoted().to_owned());
            let known = known.join(", ");
            let elsewhere = elsewhere(&key, &known);
            (
                Some(key),
                format!("is unknown; known here: {known}{elsewhere}"),
            )
        } else if message.starts_with("missing field") {
            (Some(within(quoted())), "is missing; add it".to_owned())
        } else if path.is_some() {
            (path.clone(), wrong_type(message))
        } else {
            (None, format!("not valid TOML: {message}"))
        };
        let place = start.map(|start| self.place(start));
        ConfigError {
            file: self.file.to_owned(),
            place,
            key,
            problem,
        }
    }
}

/// Where a key of the other kind of file belongs, and what takes the place of one that is gone.
fn elsewhere(key: &str, known: &str) -> &'static str {
    match (key, known) {
        ("qdisc" | "class" | "filter", "engine, port, rate_group, bridge, fdb") => {
            " (qdiscs, classes and filters belong to a port: [[port.qdisc]], [[port.class]], \
             [[port.filter]]; by themselves they are a tree for `softnet sim`)"
        }
        ("engine" | "port" | "bridge", "qdisc, class, filter") => {
            " (this is to be a tree of qdiscs; a configuration with ports is for `softnet run`)"
        }
        ("port.xps" | "port.xps_rxqs", _) => {
            " (each worker sends through its own queue, and a flow keeps its queue while packets \
             of it wait; delete the key)"
        }
        _ => "",
    }
}

/// serde's `invalid type: string "two", expected i64` in words of TOML.
fn wrong_type(message: &str) -> String {
    let parts = message.strip_prefix("invalid type: ");
    let Some((found, expected)) = parts.and_then(|m| m.split_once(", expected ")) else {
        return format!("{message}; correct the value");
    };
    let found = found.replace('`', "");
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the string {text}"),
        Some(("integer", number)) => format!("the number {number}"),
        Some(("floating", rest)) => {
            let number = rest.strip_prefix("point ").unwrap_or(rest);
            format!("the number {number}")
        }
        Some(("boolean", value)) => value.to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ => found,
    };
    let expected = match expected {
        "i64" => "a whole number",
        "a string" => "a string in quotes",
        "a sequence" => "a list: [...]",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("is {found}; use {expected}")
}

/// The dotted path of the innermost key whose name or value contains byte `offset`, if the text is
/// TOML at all.
fn key_path(text: &str, offset: usize) -> Option<String> {
    use toml::de::{DeTable, DeValue};

    fn in_table(table: &DeTable<'_>, offset: usize, path: &mut Vec<String>) -> bool {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            if in_value(value.get_ref(), offset, path)
                || key.span().contains(&offset)
                || value.span().contains(&offset)
            {
                return true;
            }
            path.pop();
        }
        false
    }

    fn in_value(value: &DeValue<'_>, offset: usize, path: &mut Vec<String>) -> bool {
        match value {
            DeValue::Table(table) => in_table(table, offset, path),
            DeValue::Array(items) => items
                .iter()
                .any(|item| in_value(item.get_ref(), offset, path)),
            _ => false,
        }
    }

    let table = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    in_table(table.get_ref(), offset, &mut path).then(|| path.join("."))
}
