//! Numbers in range, and the ranges that more than one file needs.

use toml::Spanned;

use super::error::Problem;

/// The kernel's own limit (`MAX_TAP_QUEUES`).
pub(super) const QUEUES_MAX: i64 = 256;

/// The number at a key.
pub(super) fn number<T: TryFrom<i64>>(
    key: &str,
    value: &Spanned<i64>,
    (least, most): (i64, i64),
) -> Result<T, Problem> {
    let number = *value.get_ref();
    T::try_from(number)
        .ok()
        .filter(|_| (least..=most).contains(&number))
        .ok_or_else(|| {
            let text = format!("{number} is out of range; use {least} to {most}");
            Problem::new(value.span(), key, text)
        })
}
