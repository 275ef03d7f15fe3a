//! The JSON schema of the file (`softnet schema`), for editors and other checkers. It says types,
//! words and bounds; what keys say of each other is for `softnet check`.

use serde_json::{Map, Value, json};
use softnet_tc::{ClassSpec, HtbClassSpec, QDISC_KINDS, SpecOption, Unset};

use super::key::Key;
use super::link::LINK;
use super::vlans::VLANS;
use super::{block, bridge, engine, expect, fdb, port, rate_group};

/// Schema of the whole file.
pub(crate) fn schema() -> Value {
    let ports = [
        table(port::PORT),
        table(LINK),
        table(port::MEMBER),
        table(VLANS),
    ];
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

fn sentence(about: &str) -> Value {
    about
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .into()
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

    fn is(value: &Value, kind: &Value) -> bool {
        match kind.as_str() {
            Some("array") => value.is_array(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            Some("object") => value.is_object(),
            Some("string") => value.is_string(),
            _ => panic!("{kind} is no type"),
        }
    }

    fn integer(value: &Value) -> Option<i128> {
        let signed = value.as_i64().map(i128::from);
        signed.or_else(|| value.as_u64().map(i128::from))
    }

    /// Checks a value by a part of the schema; the first keyword that it does not fit.
    ///
    /// # Panics
    /// If the part has a keyword that is not known here, or one that says what it cannot say.
    fn check(value: &Value, part: &Value, whole: &Value) -> Result<(), String> {
        for (keyword, says) in part.as_object().expect("a schema is an object") {
            let list = || says.as_array().expect("a list");
            let bound = || integer(says).expect("an integer");
            let fits = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    let place = says.as_str().and_then(|place| place.strip_prefix('#'));
                    let part = place.and_then(|place| whole.pointer(place));
                    check(value, part.expect("a part of the schema"), whole)?;
                    true
                }
                "additionalProperties" => {
                    assert_eq!(says, &Value::Bool(false));
                    let known = |key: &String| !part["properties"][key].is_null();
                    value
                        .as_object()
                        .is_none_or(|table| table.keys().all(known))
                }
                "anyOf" => list().iter().any(|part| check(value, part, whole).is_ok()),
                "enum" => list().contains(value),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        check(item, says, whole)?;
                    }
                    true
                }
                "maximum" => integer(value).is_none_or(|value| value <= bound()),
                "minimum" => integer(value).is_none_or(|value| value >= bound()),
                "minItems" => value
                    .as_array()
                    .is_none_or(|items| items.len() as i128 >= bound()),
                "properties" => {
                    for (key, part) in says.as_object().expect("an object") {
                        if let Some(value) = value.get(key) {
                            check(value, part, whole)?;
                        }
                    }
                    true
                }
                "required" => value.as_object().is_none_or(|table| {
                    let mut keys = list().iter().map(|key| key.as_str().expect("a key"));
                    keys.all(|key| table.contains_key(key))
                }),
                "type" => match says {
                    Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                    kind => is(value, kind),
                },
                _ => panic!("{keyword} is no keyword"),
            };
            if !fits {
                return Err(format!("{keyword} {says}: {value}"));
            }
        }
        Ok(())
    }

    /// Valid files fit the schema, and a wrong type or key does not.
    #[test]
    fn examples_fit_the_schema() {
        let schema = schema();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let fits = |text: &str| {
            let document: toml::Table = text.parse().expect("TOML");
            let document = serde_json::to_value(document).expect("JSON");
            check(&document, &schema, &schema)
        };
        for file in [
            "examples/two-hosts.toml",
            "examples/vm.toml",
            "fuzz/corpus/config/every-key.toml",
        ] {
            let text = std::fs::read_to_string(format!("{root}/{file}")).expect(file);
            if super::super::parse(file, &text).is_ok() {
                assert_eq!(fits(&text), Ok(()), "{file}");
            }
        }
        assert_eq!(fits("[[port]]\nname = \"a\"\ndriver = \"null\"\n"), Ok(()));
        for wrong in [
            "[engine]\nworkers = \"2\"\n",
            "[engine]\nworker = 2\n",
            "[[port]]\nname = \"a\"\n",
            "[[port]]\nname = \"a\"\ndriver = \"null\"\nup = 1\n",
            "[[port]]\nname = \"a\"\ndriver = \"null\"\nqdisc = { kind = \"no\" }\n",
            "port = 1\n",
        ] {
            assert!(fits(wrong).is_err(), "{wrong}");
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
