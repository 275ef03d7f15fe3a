//! Clients that come, send anything, read or do not read, and go.
//!
//! The input is a list of steps: what to do (1 byte), which client (1), and for datagrams a length
//! (2, little-endian) and the bytes. The service is [`Links`], or that of an engine
//! ([`control`]).

use std::sync::{Arc, Mutex};

use softnet::mem::{Pool, PoolConfig};
use softnet::time::Clock;
use softnet_engine::Engine;
use softnet_engine::testing::{CondSleeper, FedDevices};
use softnet_rtnl::Rtnl;
use softnet_rtnl::nl::{Messages, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, Requests, Service};
use softnet_rtnl::server::{Clients, Peer};

use crate::service::Links;

/// Clients at most; the last one may change nothing.
const PEERS: usize = 4;

struct Dialogue<S> {
    clients: Clients,
    ports: [Option<u64>; PEERS],
    service: S,
}

pub(crate) fn run(input: &[u8]) {
    talk(input, Links::new(3));
}

/// The same with an engine behind it, and devices in memory.
pub(crate) fn control(input: &[u8]) {
    let config = PoolConfig {
        buffers: 64,
        buffer_size: 2048,
    };
    let pool = Pool::new(config).expect("memory");
    let sleepers = vec![CondSleeper::default()];
    let devices = FedDevices::default();
    let engine = Engine::start(sleepers, pool, Clock::monotonic(), devices).expect("a thread");
    talk(input, Rtnl::new(Arc::new(Mutex::new(engine))));
}

fn talk(mut input: &[u8], service: impl Service) {
    let mut dialogue = Dialogue {
        clients: Clients::new(PEERS * 8),
        ports: [None; PEERS],
        service,
    };
    while let [step, who, rest @ ..] = input {
        input = rest;
        let who = usize::from(*who) % PEERS;
        match step % 8 {
            0 => dialogue.leave(who),
            1 => {
                let port = dialogue.enter(who);
                dialogue.clients.deafen(port, &mut dialogue.service);
            }
            2 => {
                dialogue.read(who);
            }
            3 => while dialogue.read(who) {},
            _ => {
                let Some((length, rest)) = input.split_first_chunk() else {
                    break;
                };
                let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
                let (datagram, rest) = rest.split_at(length);
                input = rest;
                let port = dialogue.enter(who);
                if dialogue.clients.wants_input(port) {
                    dialogue
                        .clients
                        .receive(port, datagram, &mut dialogue.service);
                }
            }
        }
    }
    for who in 0..PEERS {
        while dialogue.read(who) {}
        if let Some(port) = dialogue.ports[who] {
            assert!(
                dialogue.clients.wants_input(port),
                "all is read, all is answered"
            );
        }
    }
}

impl<S: Service> Dialogue<S> {
    fn enter(&mut self, who: usize) -> u64 {
        *self.ports[who].get_or_insert_with(|| {
            let peer = Peer {
                port: Some(who as u32 + 1),
                uid: who as u32,
                may_change: who + 1 < PEERS,
                own: who + 1 < PEERS,
            };
            self.clients.connect(peer).expect("a free port id")
        })
    }

    fn leave(&mut self, who: usize) {
        if let Some(port) = self.ports[who].take() {
            self.clients.disconnect(port);
        }
    }

    /// Reads a datagram, if there is one: whole messages, as netlink has them.
    fn read(&mut self, who: usize) -> bool {
        let Some(port) = self.ports[who] else {
            return false;
        };
        let Some(datagram) = self.clients.output(port, &mut self.service) else {
            assert!(!self.clients.has_output(port));
            return false;
        };
        assert!(!datagram.is_empty() && datagram.len() <= Messages::MESSAGE);
        let mut messages = Requests::new(&datagram);
        for message in &mut messages {
            match message.kind {
                NLMSG_ERROR => assert!(message.payload().len() >= 20),
                NLMSG_DONE => assert!(message.has(NLM_F_MULTI) && message.payload().len() >= 4),
                _ => {}
            }
        }
        assert!(messages.rest().is_empty(), "messages end with the datagram");
        self.clients.sent(port, &mut self.service);
        true
    }
}
