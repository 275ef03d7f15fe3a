//! The expressions of a `basic` filter, in the words of tc-ematch(8).

use softnet_tc::{Compare, Ematch, Layer, MetaId, Test, Width};

use super::words::{key, number};

pub(super) const FORM: &str = "an expression like \"cmp(u16 at 2 layer transport eq 53) and not \
                               meta(priority eq 6)\"; use cmp, nbyte, u32 and meta";

/// Groups within each other at most.
const DEEPEST: usize = 32;

/// Expressions that are joined by `and` and `or`, in parentheses where that matters.
pub(super) fn read(text: &str) -> Option<Vec<Ematch>> {
    let mut rest = text.trim();
    let list = list(&mut rest, 0)?;
    rest.is_empty().then_some(list)
}

/// Cuts a word off.
fn accept(rest: &mut &str, word: &str) -> bool {
    match rest.strip_prefix(word) {
        Some(behind) if behind.starts_with([' ', '(']) => {
            *rest = behind.trim_start();
            true
        }
        _ => false,
    }
}

fn list(rest: &mut &str, depth: usize) -> Option<Vec<Ematch>> {
    let mut list = Vec::new();
    loop {
        let negated = accept(rest, "not");
        let test = match rest.strip_prefix('(') {
            Some(inner) if depth < DEEPEST => {
                *rest = inner.trim_start();
                let group = self::list(rest, depth + 1)?;
                *rest = rest.strip_prefix(')')?.trim_start();
                Test::Group(group)
            }
            Some(_) => return None,
            None => one(rest)?,
        };
        let or = accept(rest, "or");
        list.push(Ematch { negated, or, test });
        if !or && !accept(rest, "and") {
            return Some(list);
        }
    }
}

fn one(rest: &mut &str) -> Option<Test> {
    let (name, behind) = rest.split_once('(')?;
    let (inner, behind) = behind.split_once(')')?;
    *rest = behind.trim_start();
    let words: Vec<&str> = inner.split_whitespace().collect();
    match name.trim_end() {
        "cmp" => cmp(&words),
        "nbyte" => nbyte(&words),
        "u32" => Some(Test::Word(key(&words, number)?)),
        "meta" => meta(&words),
        _ => None,
    }
}

/// `HEX at OFFSET [layer LAYER]`.
fn nbyte(words: &[&str]) -> Option<Test> {
    let [digits, "at", at, rest @ ..] = words else {
        return None;
    };
    let layer = match rest {
        [] => Layer::Network,
        ["layer", name] => layer(name)?,
        _ => return None,
    };
    let pairs = digits.strip_prefix("0x")?;
    if pairs.len() % 2 != 0 || !pairs.is_ascii() || pairs.len() > 0x1ffe {
        return None;
    }
    let bytes = (0..pairs.len() / 2).map(|n| u8::from_str_radix(&pairs[2 * n..2 * n + 2], 16));
    Some(Test::Bytes {
        at: number(at)?.try_into().ok()?,
        layer,
        needle: bytes.collect::<Result<_, _>>().ok()?,
    })
}

fn layer(name: &str) -> Option<Layer> {
    match name {
        "link" | "0" => Some(Layer::Link),
        "network" | "1" => Some(Layer::Network),
        "transport" | "2" => Some(Layer::Transport),
        _ => None,
    }
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
    let (name, rest) = match rest {
        ["layer", name, rest @ ..] => (*name, rest),
        rest => ("network", rest),
    };
    let layer = layer(name)?;
    let (mask, rest) = mask(rest)?;
    let (trans, rest) = match rest {
        ["trans", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (compare, value) = compare(rest)?;
    Some(Test::Cmp {
        width,
        at: number(at)?.try_into().ok()?,
        layer,
        // None: all bits.
        mask: mask.unwrap_or_default(),
        compare,
        value,
        trans,
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
        [name, rest @ ..] => {
            let &(id, ..) = MetaId::ALL.iter().find(|(.., word)| word == name)?;
            let (shift, rest) = match rest {
                ["shift", shift, rest @ ..] => (number(shift)?.try_into().ok()?, rest),
                rest => (0, rest),
            };
            let (mask, rest) = mask(rest)?;
            let (compare, value) = compare(rest)?;
            Some(Test::Meta {
                id,
                shift,
                mask: mask.unwrap_or_default(),
                compare,
                value,
            })
        }
        [] => None,
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
