//! Where the daemon listens, and who may connect: `socket`, `socket_mode`, `socket_group`,
//! `monitor_socket` and `monitor_group` of the engine. Ports with a socket have the same keys.

use std::path::PathBuf;

use toml::Spanned;

use super::error::Problem;
use super::file::EngineTable;
use super::model::ControlConfig;

/// Longest path of a socket (`sockaddr_un` less the terminating zero).
const PATH_MAX: usize = 107;

/// The sockets of the control path.
pub(super) fn control(table: &EngineTable) -> Result<ControlConfig, Problem> {
    let (mode, group) = access(
        "engine",
        table.socket_mode.as_ref(),
        table.socket_group.as_ref(),
    )?;
    let monitor = path("engine.monitor_socket", table.monitor_socket.as_ref())?;
    if let (None, Some(group)) = (&monitor, &table.monitor_group) {
        let text = "is the group of `monitor_socket`, which is missing";
        return Err(Problem::new(group.span(), "engine.monitor_group", text));
    }
    let monitor_group = table.monitor_group.as_ref();
    let monitor_group = monitor_group.map(|value| group_name("engine.monitor_group", value));
    Ok(ControlConfig {
        socket: path("engine.socket", table.socket.as_ref())?,
        mode,
        group,
        monitor,
        monitor_group: monitor_group.transpose()?,
    })
}

/// Who may connect to a socket of a `kind` of table: its mode and its group.
pub(super) fn access(
    kind: &str,
    mode_value: Option<&Spanned<String>>,
    group_value: Option<&Spanned<String>>,
) -> Result<(u32, Option<String>), Problem> {
    let group = group_value.map(|value| group_name(format!("{kind}.socket_group"), value));
    let group = group.transpose()?;
    let mode = mode_value.map(|value| mode(kind, value)).transpose()?;
    let default = if group.is_some() { 0o660 } else { 0o600 };
    Ok((mode.unwrap_or(default), group))
}

pub(super) fn path(
    key: &'static str,
    value: Option<&Spanned<String>>,
) -> Result<Option<PathBuf>, Problem> {
    let Some(value) = value else {
        return Ok(None);
    };
    let text = value.get_ref();
    if text.is_empty() || text.contains('\0') || text.len() > PATH_MAX {
        let text = format!("{text:?} cannot be the path of a socket; use 1 to {PATH_MAX} bytes");
        return Err(Problem::new(value.span(), key, text));
    }
    Ok(Some(PathBuf::from(text)))
}

fn mode(kind: &str, value: &Spanned<String>) -> Result<u32, Problem> {
    let text = value.get_ref();
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|&mode| mode <= 0o777);
    mode.ok_or_else(|| {
        let text = format!("{text:?} is not a file mode; use three octal digits, like \"0660\"");
        Problem::new(value.span(), format!("{kind}.socket_mode"), text)
    })
}

fn group_name(key: impl Into<String>, value: &Spanned<String>) -> Result<String, Problem> {
    let text = value.get_ref();
    if text.is_empty() || text.contains(['\0', ':', '\n']) {
        let text = format!("{text:?} cannot be the name of a group");
        return Err(Problem::new(value.span(), key, text));
    }
    Ok(text.clone())
}
