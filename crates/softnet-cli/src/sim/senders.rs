//! Addresses and ports of the senders, which no two share.

use std::collections::HashSet;
use std::net::IpAddr;

use softnet_tc::sim::Flow;

/// TCP or not, source, destination.
type Ends = (bool, (IpAddr, u16), (IpAddr, u16));

/// The addresses and ports that senders have: nobody tells the packets of two apart that have the
/// same.
#[derive(Debug, Default)]
pub(super) struct Senders {
    taken: HashSet<Ends>,
    /// The next port of those that were told none.
    next: u16,
}

impl Senders {
    /// The first port of senders that have a name, unless they are told another.
    const FIRST: u16 = 20_000;

    /// Takes the addresses and ports of a flow or, if `tcp`, a connection. One without a port gets
    /// a free one.
    pub(super) fn take(&mut self, flow: &mut Flow, tcp: bool, chosen: bool) -> Result<(), String> {
        if chosen {
            return match self.taken.insert((tcp, flow.source, flow.destination)) {
                true => Ok(()),
                false => Err(format!(
                    "two senders from {} port {} to {} port {}; give one another sport",
                    flow.source.0, flow.source.1, flow.destination.0, flow.destination.1
                )),
            };
        }
        for _ in 0..=u16::MAX {
            flow.source.1 = Self::FIRST.wrapping_add(self.next);
            self.next = self.next.wrapping_add(1);
            if self.taken.insert((tcp, flow.source, flow.destination)) {
                return Ok(());
            }
        }
        Err(format!("no port of {} is left", flow.source.0))
    }

    /// The same for a flow without a name, which has the port that it has while that is free.
    pub(super) fn take_nameless(&mut self, flow: &mut Flow) -> Result<(), String> {
        match self.taken.insert((false, flow.source, flow.destination)) {
            true => Ok(()),
            false => self.take(flow, false, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::generate::flow;
    use super::*;

    #[test]
    fn no_two_senders_are_alike() {
        let mut senders = Senders::default();
        let mut one = flow("rate=1mbit,for=1s").expect("a flow").flow;
        let mut ports: Vec<u16> = Vec::new();
        for _ in 0..3 {
            senders.take_nameless(&mut one).expect("free");
            ports.push(one.source.1);
        }
        assert_eq!(ports, [10_000, 20_000, 20_001]);
        let error = senders.take(&mut one, false, true).expect_err("taken");
        assert!(error.starts_with("two senders from 10.0.0.1 port 20001 to 10.0.0.2 port 9"));
        senders
            .take(&mut one, true, true)
            .expect("of another protocol");
    }
}
