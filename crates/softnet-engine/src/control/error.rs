//! Why the control object refuses a change.

use std::error::Error;

use super::Settings;
use crate::EngineError;

/// Why a change was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No link has this number.
    #[error("there is no link with the number {0}")]
    NoLink(u32),
    /// No link of this name.
    #[error("there is no link named `{0}`")]
    NoLinkNamed(String),
    /// The name is taken.
    #[error("there is already a link named `{0}`")]
    Exists(String),
    /// The kernel would not take this name either.
    #[error("`{0}` cannot be the name of a link: 1 to 15 bytes without `/`, `:` or spaces")]
    BadName(String),
    /// Not a unicast address.
    #[error("a link's address must be a unicast address")]
    BadAddress,
    /// Smaller than the device can have.
    #[error("mtu less than device minimum")]
    MtuTooSmall,
    /// Larger than the device can have.
    #[error("mtu greater than device maximum")]
    MtuTooLarge,
    /// Only a bridge has members.
    #[error("the link `{0}` is no bridge")]
    NoBridge(String),
    /// A bridge is no member of another, and has no queue.
    #[error("the link `{0}` is no port")]
    NoPort(String),
    /// No group of this name.
    #[error("there is no rate group named `{0}`")]
    NoGroup(String),
    /// It has ports.
    #[error("ports are in the rate group `{0}`")]
    GroupInUse(String),
    /// The device behind a port.
    #[error("the device of link `{name}` refuses")]
    Device {
        /// The link.
        name: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ControlError {
    /// The device behind a link refuses.
    pub(super) fn device(
        link: &Settings,
        source: impl Error + Send + Sync + 'static,
    ) -> ControlError {
        ControlError::Device {
            name: link.name.clone(),
            source: Box::new(source),
        }
    }
}
