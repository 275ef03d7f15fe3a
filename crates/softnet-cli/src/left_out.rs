//! The running state that no key of the configuration expresses, as the commands that make it:
//! comments of `softnet dump-config`.

use softnet_io::{DeviceSpec, TapSpec};

use crate::setup::Engine;

/// Comments, a line each.
pub(crate) fn comments(engine: &Engine) -> String {
    let links = engine.links();
    let renamed = links.values().filter_map(|link| {
        let name = &link.settings.name;
        match link.device()? {
            DeviceSpec::Tap(TapSpec { interface, .. }) if interface != name => Some(format!(
                "# left out: {}\n",
                format!("ip link set dev {interface} name {name}").escape_debug()
            )),
            _ => None,
        }
    });
    renamed.collect()
}
