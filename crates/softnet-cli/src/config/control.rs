//! Sockets: their paths, modes and groups, of the daemon and of ports.

use std::path::PathBuf;

use super::form::Text;

/// Longest path of a socket (`sockaddr_un` less the terminating zero).
const PATH_MAX: usize = 107;

pub(super) const PATH: Text<PathBuf> = Text(
    |text| match text.len() {
        1..=PATH_MAX if !text.contains('\0') => Ok(text.into()),
        _ => Err(format!(
            "{text:?} cannot be the path of a socket; use 1 to {PATH_MAX} bytes"
        )),
    },
    |path| path.to_str().map(str::to_owned),
);

/// The path of a file.
pub(super) const FILE: Text<PathBuf> = Text(
    |text| match text.is_empty() || text.contains('\0') {
        false => Ok(text.into()),
        true => Err(format!("{text:?} cannot be the path of a file")),
    },
    |path| path.to_str().map(str::to_owned),
);

pub(super) const MODE: Text<u32> = Text(
    |text| {
        let mode = u32::from_str_radix(text, 8).ok();
        mode.filter(|&mode| mode <= 0o777).ok_or_else(|| {
            format!("{text:?} is not a file mode; use three octal digits, like \"0660\"")
        })
    },
    |mode| Some(format!("{mode:04o}")),
);

/// Name or number of a group.
pub(super) const GROUP: Text<String> = Text(
    |text| {
        if text.is_empty() || text.contains(['\0', ':', '\n']) {
            return Err(format!("{text:?} cannot be the name of a group"));
        }
        Ok(text.to_owned())
    },
    |group| Some(group.clone()),
);

/// Mode of a socket that is not given one.
pub(super) fn default_mode(group: Option<&String>) -> u32 {
    if group.is_some() { 0o660 } else { 0o600 }
}
