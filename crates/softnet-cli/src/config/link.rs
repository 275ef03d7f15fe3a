//! What `ip link set` changes of a port or bridge: `txqueuelen`, `alias`, `group` and `up`.

use softnet_engine::{ALIAS_MAX, Settings};
use softnet_tc::QdiscSpec;
use toml::Spanned;

use super::error::Problem;
use super::range::number;

const NUMBERS: (i64, i64) = (0, u32::MAX as i64);

/// The keys of a table, which is a `kind`.
pub(super) fn settings(
    kind: &str,
    mut link: Settings,
    txqueuelen: Option<&Spanned<i64>>,
    alias: Option<&Spanned<String>>,
    group: Option<&Spanned<i64>>,
    up: Option<&Spanned<bool>>,
) -> Result<Settings, Problem> {
    if let Some(value) = txqueuelen {
        let key = format!("{kind}.txqueuelen");
        link.tx_queue_len = number(&key, value, NUMBERS)?;
        // The default qdisc is to hold so many.
        let limit = link.tx_queue_len;
        let check = QdiscSpec::PfifoFast { limit }.check();
        check.map_err(|error| Problem::new(value.span(), key, error.to_string()))?;
    }
    if let Some(value) = alias {
        let text = value.get_ref();
        if text.len() > ALIAS_MAX || text.contains('\0') {
            let text = format!("is no alias; use at most {ALIAS_MAX} bytes");
            return Err(Problem::new(value.span(), format!("{kind}.alias"), text));
        }
        link.alias = text.clone();
    }
    if let Some(value) = group {
        link.group = number(&format!("{kind}.group"), value, NUMBERS)?;
    }
    link.up = up.is_none_or(|up| *up.get_ref());
    Ok(link)
}
