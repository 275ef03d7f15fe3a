//! The control socket and the monitor's: where they are, and listening there.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use softnet_rtnl::server::{self, Listen, Server, Sockets, group_id};

use crate::config::ControlConfig;
use crate::failure::{Exit, Failure};
use crate::socket;

/// Where the daemon listens for requests; its directory is there.
pub(super) fn control_socket(config: &ControlConfig) -> Result<PathBuf, Failure> {
    let path = config.socket.clone().unwrap_or_else(socket::default_path);
    if config.socket.is_none()
        && let Some(directory) = path.parent()
    {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory);
        made.map_err(|error| cannot_listen(&path, &error))?;
        if !socket::is_chosen() {
            socket::check_directory(directory).map_err(|error| cannot_listen(&path, &error))?;
        }
    }
    Ok(path)
}

pub(super) fn cannot_listen(path: &Path, error: &dyn std::error::Error) -> Failure {
    let what = format!(
        "cannot listen for tc, ip and bridge at {}; choose another place with --socket",
        path.display()
    );
    Failure::because(Exit::Config, what, error)
}

/// Listens for requests; they are answered when the ports are there.
pub(super) fn listen(
    config: &ControlConfig,
    path: &Path,
    had: Sockets,
) -> Result<Server, Failure> {
    let cannot = |error: &dyn std::error::Error| cannot_listen(path, error);
    let group = config.group.as_deref().map(group_id).transpose();
    let group = group.map_err(|error| cannot(&error))?;
    let monitor_group = config.monitor_group.as_deref().map(group_id).transpose();
    let monitor_group = monitor_group.map_err(|error| cannot(&error))?;
    let config = server::Config {
        listen: Listen {
            path: path.to_owned(),
            mode: config.mode,
            group,
        },
        monitor: config.monitor.clone().map(|path| Listen {
            path,
            mode: if monitor_group.is_some() {
                0o660
            } else {
                0o666
            },
            group: monitor_group,
        }),
        clients: server::Config::CLIENTS,
    };
    Server::take(&config, had).map_err(|error| cannot(&error))
}
