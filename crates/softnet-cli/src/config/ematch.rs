//! The expressions of a `basic` filter, in the words of tc-ematch(8).

use softnet_tc::{Compare, Ematch, Layer, Test, Width};

use super::words::{key, number};

pub(super) const FORM: &str = "an expression like \"cmp(u16 at 2 layer transport eq 53) and not \
                               meta(priority eq 6)\"; use cmp, u32 and meta";

/// Expressions that are joined by `and`.
pub(super) fn read(text: &str) -> Option<Vec<Ematch>> {
    text.split(" and ").map(|text| one(text.trim())).collect()
}

fn one(text: &str) -> Option<Ematch> {
    let (negated, text) = match text.strip_prefix("not ") {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let (name, inner) = text.strip_suffix(')')?.split_once('(')?;
    let words: Vec<&str> = inner.split_whitespace().collect();
    let test = match name.trim_end() {
        "cmp" => cmp(&words)?,
        "u32" => Test::Word(key(&words, number)?),
        "meta" => meta(&words)?,
        _ => return None,
    };
    Some(Ematch { negated, test })
}

/// `ALIGN at OFFSET [layer LAYER] [mask MASK] OPERATION VALUE`.
fn cmp(words: &[&str]) -> Option<Test> {
    let [width, "at", at, rest @ ..] = words else {
        return None;
    };
    let width = match *width {
        "u8" => Width::One,
        "u16" => Width::Two,
        "u32" => Width::Four,
        _ => return None,
    };
    let (layer, rest) = match rest {
        ["layer", layer, rest @ ..] => (*layer, rest),
        rest => ("network", rest),
    };
    let layer = match layer {
        "link" | "0" => Layer::Link,
        "network" | "1" => Layer::Network,
        "transport" | "2" => Layer::Transport,
        _ => return None,
    };
    let (mask, rest) = mask(rest)?;
    let (compare, value) = compare(rest)?;
    Some(Test::Cmp {
        width,
        at: number(at)?.try_into().ok()?,
        layer,
        // None: all bits.
        mask: mask.unwrap_or_default(),
        compare,
        value,
    })
}

/// `priority OPERATION VALUE` or `nf_mark [mask MASK] OPERATION VALUE`.
fn meta(words: &[&str]) -> Option<Test> {
    match words {
        ["priority", rest @ ..] => {
            let (compare, value) = compare(rest)?;
            Some(Test::Priority(compare, value))
        }
        ["nf_mark", rest @ ..] => {
            let (mask, rest) = mask(rest)?;
            let (compare, value) = compare(rest)?;
            Some(Test::Mark {
                mask: mask.unwrap_or(u32::MAX),
                compare,
                value,
            })
        }
        _ => None,
    }
}

fn mask<'a>(words: &'a [&'a str]) -> Option<(Option<u32>, &'a [&'a str])> {
    match words {
        ["mask", mask, rest @ ..] => Some((Some(number(mask)?), rest)),
        rest => Some((None, rest)),
    }
}

fn compare(words: &[&str]) -> Option<(Compare, u32)> {
    let [compare, value] = words else {
        return None;
    };
    let compare = match *compare {
        "eq" => Compare::Eq,
        "lt" => Compare::Lt,
        "gt" => Compare::Gt,
        _ => return None,
    };
    Some((compare, number(value)?))
}
