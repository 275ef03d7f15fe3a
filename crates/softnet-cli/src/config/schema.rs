//! The JSON schema of the file (`softnet schema`), for editors and other checkers. It says types,
//! words and bounds; what keys say of each other is for `softnet check`.

use serde_json::{Map, Value, json};
use softnet_tc::{ClassSpec, HtbClassSpec, QDISC_KINDS, SpecOption, Unset};

use super::key::Key;
use super::link::LINK;
use super::member::MEMBER;
use super::vlans::VLANS;
use super::{block, bridge, engine, expect, fdb, port, rate_group};

/// Schema of the whole file.
pub(crate) fn schema() -> Value {
    let ports = [table(port::PORT), table(LINK), table(MEMBER), table(VLANS)];
    let bridges = [table(bridge::BRIDGE), table(LINK), table(VLANS)];
    let list = |tables: &[Value]| json!({ "type": "array", "items": joined(tables) });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of softnet",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "include": {
                "type": "array",
                "items": { "type": "string" },
                "description": "further files, by name or pattern",
            },
            "engine": table(engine::ENGINE),
            "port": list(&ports),
            "block": list(&[table(block::BLOCK)]),
            "rate_group": list(&[table(rate_group::RATE_GROUP)]),
            "bridge": list(&bridges),
            "fdb": list(&[table(fdb::FDB)]),
            "expect": list(&[table(expect::EXPECT)]),
        },
        "$defs": {
            "qdisc": qdisc(),
            "class": class(),
            "text": { "type": ["string", "number", "boolean"] },
        },
    })
}

/// True if the value of a port's key is a list.
pub(crate) fn has_list(name: &str) -> bool {
    let is = |key: &Key<port::Port>| key.name == name && value(key)["type"] == "array";
    matches!(name, "vlans" | "untagged") || port::PORT.iter().any(is)
}

/// A table with these keys.
fn table<T>(keys: &[Key<T>]) -> Value {
    let required = keys
        .iter()
        .filter(|key| matches!(key.unset, Unset::Required(..)));
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let properties = keys.iter().map(|key| (key.name.to_owned(), value(key)));
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties.collect::<Map<_, _>>(),
    })
}

/// One table with the keys of all.
fn joined(tables: &[Value]) -> Value {
    let mut all = tables.first().cloned().unwrap_or_default();
    for table in tables.iter().skip(1) {
        for (key, value) in table["properties"].as_object().into_iter().flatten() {
            all["properties"][key] = value.clone();
        }
        if let (Some(all), Some(more)) =
            (all["required"].as_array_mut(), table["required"].as_array())
        {
            all.extend(more.iter().cloned());
        }
    }
    all
}

/// The value of a key. Those that are read by hand are told by their names.
fn value<T>(key: &Key<T>) -> Value {
    let qdiscs = json!({ "$ref": "#/$defs/qdisc" });
    let mut value = match (key.field, key.name) {
        (Some(field), _) => field.schema(),
        (None, "name" | "rate" | "burst" | "port" | "address" | "driver") => {
            json!({ "$ref": "#/$defs/text" })
        }
        (None, "qdisc") => json!({ "anyOf": [qdiscs, { "type": "array", "items": qdiscs }] }),
        (None, "class") => json!({ "type": "array", "items": { "$ref": "#/$defs/class" } }),
        (None, "filter") => json!({ "type": "array", "items": { "type": "object" } }),
        (None, "rps" | "ports" | "vlans" | "untagged") => json!({ "type": "array" }),
        (None, "storm") => table(port::STORM),
        (None, _) => json!({}),
    };
    value["description"] = sentence(key.about);
    value
}

/// A description in one line, with the texts of its links and not their targets, which are places
/// in the reference.
fn sentence(about: &str) -> Value {
    let line = about.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut text, mut rest) = (String::new(), line.as_str());
    while let Some((before, link)) = rest.split_once("](")
        && let Some((before, shown)) = before.rsplit_once('[')
        && let Some((_, after)) = link.split_once(')')
    {
        text += before;
        text += shown;
        rest = after;
    }
    (text + rest).into()
}

/// A qdisc: its kind, place, and the options of all kinds.
fn qdisc() -> Value {
    let kinds: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let mut properties = Map::new();
    properties.insert("kind".to_owned(), json!({ "enum": kinds }));
    for kind in QDISC_KINDS {
        options(&mut properties, kind.options);
    }
    // Size tables, estimators and what is told by hand are for the reader.
    json!({ "type": "object", "required": ["kind"], "properties": properties })
}

fn class() -> Value {
    let mut properties = Map::new();
    options::<ClassSpec>(&mut properties, HtbClassSpec::OPTIONS);
    json!({ "type": "object", "required": ["classid"], "properties": properties })
}

/// Options take numbers, tc's texts, or words; the same name may mean something else in another
/// kind.
fn options<S>(properties: &mut Map<String, Value>, options: &[SpecOption<S>]) {
    for option in options {
        let about = sentence(option.about);
        let entry = properties.entry(option.name);
        entry.or_insert_with(|| json!({ "description": about }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Valid files fit the schema, and a wrong type or key does not.
    #[test]
    fn examples_fit_the_schema() {
        let schema = jsonschema::validator_for(&schema()).expect("a schema");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let fits = |text: &str| {
            let document: toml::Table = text.parse().expect("TOML");
            schema.is_valid(&serde_json::to_value(document).expect("JSON"))
        };
        for file in [
            "examples/two-hosts.toml",
            "examples/vm.toml",
            "fuzz/corpus/config/every-key.toml",
        ] {
            let text = std::fs::read_to_string(format!("{root}/{file}")).expect(file);
            if super::super::parse(file, &text).is_ok() {
                let value = serde_json::to_value(text.parse::<toml::Table>().expect(file));
                let value = value.expect("JSON");
                let errors: Vec<String> = schema
                    .iter_errors(&value)
                    .map(|error| error.to_string())
                    .collect();
                assert!(errors.is_empty(), "{file}: {errors:?}");
            }
        }
        assert!(fits("[[port]]\nname = \"a\"\ndriver = \"null\"\n"));
        for wrong in [
            "[engine]\nworkers = \"2\"\n",
            "[engine]\nworker = 2\n",
            "[[port]]\nname = \"a\"\n",
            "[[port]]\nname = \"a\"\ndriver = \"null\"\nup = 1\n",
            "[[port]]\nname = \"a\"\ndriver = \"null\"\nqdisc = { kind = \"no\" }\n",
            "port = 1\n",
        ] {
            assert!(!fits(wrong), "{wrong}");
        }
    }

    #[test]
    fn lists_are_known() {
        assert!(
            ["address", "allowed_ips", "rps", "vlans"]
                .into_iter()
                .all(has_list)
        );
        assert!(
            !["mtu", "qdisc", "socket", "storm"]
                .into_iter()
                .any(has_list)
        );
    }
}
