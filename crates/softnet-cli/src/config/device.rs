//! The device of a port: what each driver makes, and the keys that say more of it.

use softnet_engine::{PortOptions, PortSpec, Virtual, VlanTag};
use softnet_io::vhost_user::{SocketSpec, VhostUserSpec};
use softnet_io::{
    AfPacketSpec, AfXdpSpec, DeviceSpec, DgramSpec, NullSpec, PcapSpec, StreamSpec, TapSpec,
    VirtualSpec,
};

use super::control::default_mode;
use super::port::Port;
use super::table::Table;

const DRIVERS: &str = "tap, af_packet, af_xdp, vhost_user, stream, dgram, pcap, null, ifb or vlan";
pub(super) const ETH_P_8021Q: u16 = 0x8100;
pub(super) const ETH_P_8021AD: u16 = 0x88a8;

pub(super) fn guest(port: &mut Port) -> Option<&mut VhostUserSpec> {
    match &mut port.options.device {
        DeviceSpec::VhostUser(spec) => Some(spec),
        _ => None,
    }
}

pub(super) fn socket(port: &mut Port) -> Option<&mut SocketSpec> {
    match &mut port.options.device {
        DeviceSpec::VhostUser(VhostUserSpec { socket, .. })
        | DeviceSpec::Stream(StreamSpec { socket, .. })
        | DeviceSpec::Dgram(DgramSpec { socket }) => Some(socket),
        _ => None,
    }
}

pub(super) fn tap(port: &mut Port) -> Option<&mut TapSpec> {
    match &mut port.options.device {
        DeviceSpec::Tap(tap) => Some(tap),
        _ => None,
    }
}

pub(super) fn pcap(port: &mut Port) -> Option<&mut PcapSpec> {
    match &mut port.options.device {
        DeviceSpec::Pcap(pcap) => Some(pcap),
        _ => None,
    }
}

/// The parent and the tag of a VLAN.
pub(super) fn vlan(port: &mut Port) -> Option<(&mut String, &mut VlanTag)> {
    match &mut port.options.device {
        DeviceSpec::Virtual(VirtualSpec(Virtual::Vlan { parent, tag })) => Some((parent, tag)),
        _ => None,
    }
}

pub(super) fn interface(port: &mut Port) -> Option<&mut String> {
    match &mut port.options.device {
        DeviceSpec::Tap(TapSpec { interface, .. })
        | DeviceSpec::AfPacket(AfPacketSpec { interface, .. })
        | DeviceSpec::AfXdp(AfXdpSpec { interface, .. }) => Some(interface),
        _ => None,
    }
}

/// A port whose table has its driver alone.
pub(super) fn blank(driver: &str) -> Option<Port> {
    let socket = SocketSpec {
        path: "".into(),
        server: true,
        mode: default_mode(None),
        group: None,
    };
    let device = match driver {
        "tap" => TapSpec::new("").into(),
        "vhost_user" => VhostUserSpec::from(socket).into(),
        "stream" => {
            let uplink = None;
            StreamSpec { socket, uplink }.into()
        }
        "dgram" => DgramSpec { socket }.into(),
        "pcap" => PcapSpec::default().into(),
        "af_packet" => AfPacketSpec::new("").into(),
        "af_xdp" => AfXdpSpec::new("").into(),
        "null" => DeviceSpec::Null(NullSpec),
        "ifb" => VirtualSpec(Virtual::Ifb).into(),
        "vlan" => VirtualSpec(Virtual::Vlan {
            parent: String::new(),
            tag: VlanTag {
                proto: ETH_P_8021Q,
                id: 0,
            },
        })
        .into(),
        _ => return None,
    };
    Some(PortSpec {
        options: PortOptions {
            device,
            ..PortOptions::default()
        },
        ..PortSpec::default()
    })
}

/// The name of the driver, if there is such a one.
pub(super) fn driver<'t>(table: &'t Table<'_>) -> Option<&'t str> {
    let item = table.find("driver")?;
    let name = item.text()?;
    if blank(name).is_some() {
        return Some(name);
    }
    item.problem(format!("there is no driver {name:?}; use {DRIVERS}"))
}

/// Completes the device of what its table says.
pub(super) fn complete(table: &Table<'_>, port: &mut Port) {
    if !table.has("interface") {
        let name = port.settings.name.clone();
        if let Some(interface) = interface(port) {
            *interface = name;
        }
    }
    let starts = match &port.options.device {
        DeviceSpec::Stream(StreamSpec { uplink, .. }) => uplink.is_some(),
        _ => false,
    };
    if starts && table.has("socket") {
        let text = "the port's peer is started, and has no path; remove this or `uplink`";
        table.problem::<()>("socket", text);
    }
    if let Some(socket) = socket(port) {
        if !table.has("socket") && !starts {
            let driver = table.find("driver").and_then(|item| item.text());
            let driver = driver.unwrap_or_default();
            let text = format!("driver {driver:?} needs the path of a socket; add one");
            table.problem_at::<()>(table.span_of("driver"), "socket", text);
        }
        if !table.has("socket_mode") {
            socket.mode = default_mode(socket.group.as_ref());
        }
    }
    if let Some(tap) = tap(port)
        && (tap.attach || tap.file.is_some())
    {
        let text = "the interface is somebody else's and stays as it is; remove this or `attach`";
        for (key, is_empty) in [
            ("address", tap.addresses.is_empty()),
            ("gateway", tap.gateways.is_empty()),
            ("routes", tap.routes.is_empty()),
        ] {
            if !is_empty {
                table.problem::<()>(key, text);
            }
        }
    }
    if let DeviceSpec::Virtual(VirtualSpec(Virtual::Vlan { .. })) = &port.options.device {
        for (key, what) in [("link", "name of a port"), ("id", "number of the VLAN")] {
            if !table.has(key) {
                let text = format!("driver \"vlan\" needs the {what}; add one");
                table.problem_at::<()>(table.span_of("driver"), key, text);
            }
        }
    }
}

/// The driver that makes such a device.
pub(super) fn driver_of(device: &DeviceSpec) -> &'static str {
    match device {
        DeviceSpec::Null(NullSpec) => "null",
        DeviceSpec::VhostUser(_) => "vhost_user",
        DeviceSpec::Tap(_) => "tap",
        DeviceSpec::Virtual(VirtualSpec(Virtual::Vlan { .. })) => "vlan",
        DeviceSpec::Virtual(_) => "ifb",
        DeviceSpec::AfPacket(_) => "af_packet",
        DeviceSpec::AfXdp(_) => "af_xdp",
        DeviceSpec::Stream(_) => "stream",
        DeviceSpec::Dgram(_) => "dgram",
        DeviceSpec::Pcap(_) => "pcap",
    }
}
