//! The veth of a host whose port is an interface of the kernel.

use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use softnet_engine::Opened;
use softnet_io::{
    AfPacket, AfPacketSpec, AfXdp, AfXdpSpec, Buffers, Links, Netns, PortRx, PortTx,
};

use super::{HostConfig, Via, any};

/// The switch's end of a host's veth: `port` and the host's number.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The namespace of that end.
    pub netns: Netns,
    /// The interface.
    pub interface: String,
}

impl Wire {
    /// `ip` with these arguments, separated by blanks, at that end.
    pub fn ip(&self, arguments: &str) {
        let run = || {
            Command::new("ip")
                .args(arguments.split_whitespace())
                .output()
        };
        let output = self.netns.run(run).expect("entering our namespace");
        let output = output.expect("ip");
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// True if there is an interface of this name at that end.
    pub fn exists(&self, name: &str) -> bool {
        let look = || Links::open().expect("a netlink socket").index(name).is_ok();
        self.netns.run(look).expect("entering our namespace")
    }

    /// A veth to `host`, whose end is `eth0` there.
    pub(super) fn to(host: &Netns, number: u8, config: &HostConfig) -> Wire {
        let wire = Wire {
            netns: Netns::anonymous().expect("a namespace"),
            interface: format!("port{number}"),
        };
        wire.connect(host, config);
        wire
    }

    pub(super) fn connect(&self, host: &Netns, config: &HostConfig) {
        let Wire { interface, .. } = self;
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            host.as_fd().as_raw_fd()
        );
        let (queues, mtu) = (config.queues, config.mtu);
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        self.ip(&format!(
            "link add {interface} mtu {mtu} {queues} type veth \
             peer name eth0 mtu {mtu} {queues} netns {path}"
        ));
        self.ip(&format!("link set {interface} up"));
    }

    pub(super) fn open(
        &self,
        via: Via,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
    ) -> Opened<PortRx, PortTx> {
        let open = || match via {
            Via::AfXdp => {
                let spec = AfXdpSpec::new(&self.interface);
                let opened = AfXdp::open(&spec, queues, mtu, buffers).expect("XDP sockets");
                any(opened.rx, opened.tx, opened.features)
            }
            _ => {
                let spec = AfPacketSpec::new(&self.interface);
                let opened = AfPacket::open(&spec, queues, mtu, buffers).expect("packet sockets");
                any(opened.rx, opened.tx, opened.features)
            }
        };
        self.netns.run(open).expect("our namespace")
    }
}
