//! A host with a TAP port: raw frames to all stations, and an interface that comes and goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use softnet::wire::VnetHeader;
use softnet_tests::random::Random;
use softnet_tests::raw::PacketSocket;
use softnet_tests::{Host, Lan};

use crate::frames::{self, BROADCAST, Mac};
use crate::machine::Faults;

pub(crate) struct HostLife<'a> {
    pub(crate) lan: &'a Lan,
    pub(crate) number: usize,
    /// True: the interface is never taken down.
    pub(crate) steady: bool,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
}

impl HostLife<'_> {
    fn host(&self) -> &Host {
        &self.lan.hosts[self.number]
    }

    fn note(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// The host's life until `stop`; its interface is up at the end.
    pub(crate) fn run(&mut self, stations: &[Mac], stop: &AtomicBool) {
        let mut socket = PacketSocket::open(self.host(), 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..self.random.below(300) {
                self.burst(&socket, stations);
                sleep(Duration::from_micros(self.random.below(1500)));
            }
            if self.steady {
                continue;
            }
            let index = self.host().index();
            if self.random.one_in(2) {
                self.note("interface down");
                let down = self.host().links(|links| links.set_up(index, false));
                down.expect("taking it down");
                self.burst(&socket, stations);
                let up = self.host().links(|links| links.set_up(index, true));
                up.expect("taking it up");
            } else {
                self.note("interface removed");
                let removed = self.host().links(|links| links.delete(index));
                removed.expect("removing it");
                sleep(Duration::from_millis(self.random.below(30)));
                self.lan.reopen(self.number);
                socket = PacketSocket::open(self.host(), 0);
            }
        }
    }

    fn burst(&mut self, socket: &PacketSocket, stations: &[Mac]) {
        let from = self.host().mac;
        for number in 0..self.random.below(33) {
            let to = match self.random.below(64) {
                0 => BROADCAST,
                _ => *self.random.pick(stations),
            };
            let (header, frame) = if !self.steady && self.random.one_in(16) {
                let payload = 1 + self.random.below(60_000) as usize;
                let (header, frame) = frames::large(to, from, payload);
                (VnetHeader::from_bytes(&header), frame)
            } else {
                let len = *self.random.pick(&[60, 60, 60, 300, 1000, 1514]);
                let frame = frames::frame(to, from, number as u32, len);
                (VnetHeader::default(), frame)
            };
            // The interface may be down.
            let _ = socket.send(header, &frame);
        }
    }
}
