//! Words of tc that more than one kind of filter has: numbers, and keys of u32.

use softnet_tc::Key;

/// tc-u32(8)'s `u8`, `u16` or `u32`, value and mask, `at` and the offset. tc makes words of
/// shorter keys, too. `read_mask` reads the mask, which is hexadecimal in a filter ([`hex`]), and
/// not in an expression ([`number`]).
pub(super) fn key(words: &[&str], read_mask: fn(&str) -> Option<u32>) -> Option<Key> {
    let (width, value, mask, at) = match *words {
        [width, value, mask] => (width, value, mask, "0"),
        [width, value, mask, "at", at] => (width, value, mask, at),
        _ => return None,
    };
    let bytes = match width {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        _ => return None,
    };
    let most = u32::MAX >> (32 - 8 * bytes);
    let value = number(value).filter(|&value| value <= most)?;
    let mask = read_mask(mask).filter(|&mask| mask <= most)?;
    let (at, next) = match at.strip_prefix("nexthdr+") {
        Some(at) => (at, u32::MAX),
        None => (at, 0),
    };
    let at: i32 = at.parse().ok()?;
    let inside = at.rem_euclid(4);
    // A whole word may be anywhere; shorter keys are in the word that holds them.
    if bytes == 4 {
        return Some(Key {
            value,
            mask,
            at,
            next,
        });
    }
    if inside % bytes != 0 {
        return None;
    }
    let shift = 8 * (4 - bytes - inside);
    Some(Key {
        value: value << shift,
        mask: mask << shift,
        at: at - inside,
        next,
    })
}

/// Decimal, or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.parse().ok().filter(|_| !text.starts_with('+')),
    }
}

/// Hexadecimal, with or without `0x`.
pub(super) fn hex(text: &str) -> Option<u32> {
    number(&format!("0x{}", text.strip_prefix("0x").unwrap_or(text)))
}
