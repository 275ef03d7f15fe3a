//! Parameters and options of `cake`.

use std::time::Duration;

use crate::qdisc::aqm::nanos;
use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::option::{Form, QdiscOption, Unset, options, parameters, words};
use crate::qdisc::spec::SpecError;
use crate::units::MAX_RATE;

words! {
    /// Tins, and the code points (DSCP) that lead to each.
    pub enum Diffserv {
        /// Bulk, best effort and voice.
        #[default]
        Diffserv3 = "diffserv3",
        /// Bulk, best effort, video and voice.
        Diffserv4 = "diffserv4",
        /// Eight tins, for the classes of RFC 4594.
        Diffserv8 = "diffserv8",
        /// One tin.
        Besteffort = "besteffort",
        /// Eight tins, one for each IP precedence.
        Precedence = "precedence",
    }
}

words! {
    /// By what packets share a queue, and between whom capacity is divided.
    pub enum Isolation {
        /// All packets of a tin share one queue.
        Flowblind = "flowblind",
        /// One queue for each source address.
        Srchost = "srchost",
        /// One queue for each destination address.
        Dsthost = "dsthost",
        /// One queue for each pair of addresses.
        Hosts = "hosts",
        /// One queue for each flow.
        Flows = "flows",
        /// Fair between source addresses, then between the flows of each.
        DualSrchost = "dual-srchost",
        /// Fair between destination addresses, then between the flows of each.
        DualDsthost = "dual-dsthost",
        /// Fair between source and destination addresses, then between flows.
        #[default]
        Triple = "triple-isolate",
    }
}

impl Isolation {
    const SOURCE: usize = 1;
    const DESTINATION: usize = 2;
    const FLOWS: usize = 4;

    fn has(self, bits: usize) -> bool {
        self as usize & bits != 0
    }

    /// Flows are told apart by all of addresses, protocol and ports.
    pub(super) fn by_flow(self) -> bool {
        self.has(Isolation::FLOWS)
    }

    /// The source address counts.
    pub(super) fn by_source(self) -> bool {
        self.has(Isolation::SOURCE)
    }

    /// The destination address counts.
    pub(super) fn by_destination(self) -> bool {
        self.has(Isolation::DESTINATION)
    }

    /// Ends between which capacity is divided before flows: 0 for sources, 1 for destinations.
    #[inline]
    pub(super) fn divided(self) -> impl Iterator<Item = usize> {
        let ends = [self.by_source(), self.by_destination()];
        let by_flow = self.by_flow();
        (0..2).filter(move |&end| by_flow && ends[end])
    }
}

words! {
    /// Thinning of TCP's pure acknowledgments.
    pub enum AckFilter {
        /// None is dropped.
        #[default]
        Off = "no-ack-filter",
        /// One that two later ones make needless is dropped.
        Filter = "ack-filter",
        /// One that a later one makes needless is dropped.
        Aggressive = "ack-filter-aggressive",
    }
}

words! {
    /// Framing of the link behind the shaper.
    pub enum Framing {
        /// Packets as they are.
        #[default]
        Plain = "noatm",
        /// Cells of 53 bytes that carry 48.
        Atm = "atm",
        /// A byte more for each 64 or part of it (IEEE 802.3ah, 64b/65b).
        Ptm = "ptm",
    }
}

parameters! {
    /// Parameters of `cake` and `cake_mq`, as in tc-cake(8). Defaults are the kernel's.
    pub struct CakeSpec {
        /// Bytes per second; `None`: unlimited.
        pub bandwidth: Option<u64> = None,
        /// Follows the rate of what arrives.
        pub autorate_ingress: bool = false,
        /// Tins.
        pub diffserv: Diffserv = Diffserv::Diffserv3,
        /// Queues and hosts.
        pub isolation: Isolation = Isolation::Triple,
        /// Addresses from before NAT count. Softnet translates none, so it has no effect.
        pub nat: bool = false,
        /// Clears the code points.
        pub wash: bool = false,
        /// Dropped packets have passed the bottleneck, and are charged.
        pub ingress: bool = false,
        /// Filter of acknowledgments.
        pub ack_filter: AckFilter = AckFilter::Off,
        /// Cuts large frames into their wire packets.
        pub split_gso: bool = true,
        /// About the round trip of the flows; at least 1 µs.
        pub rtt: Duration = Duration::from_millis(100),
        /// Delay that may last; `None`: a twentieth of `rtt`.
        pub target: Option<Duration> = None,
        /// Bytes that the link adds to each IP packet; `None`: packets count as they are here,
        /// Ethernet header included (`raw`).
        pub overhead: Option<i32> = None,
        /// The least that a packet counts as, `overhead` included.
        pub mpu: u32 = 0,
        /// Framing of the link.
        pub framing: Framing = Framing::Plain,
        /// Bytes of buffers that may wait; `None`: four times what leaves in `rtt`, at least 4 MiB.
        pub memlimit: Option<u32> = None,
        /// Bits of the packet's mark that say the tin.
        pub fwmark: u32 = 0,
    }
}

impl CakeSpec {
    /// Nanoseconds of `rtt`.
    pub(super) fn interval(&self) -> u64 {
        nanos(self.rtt).max(1000)
    }

    /// Nanoseconds of the delay that may last.
    pub fn target(&self) -> Duration {
        let derived = Duration::from_micros(self.rtt.as_micros() as u64 / 20);
        let target = self.target.unwrap_or(derived);
        target.max(Duration::from_micros(1))
    }

    /// Parameters that have no effect in a tree of so many instances, which share its rates: each
    /// as `tc` spells it, and what it does not do, to be put behind it.
    pub fn without_effect(
        &self,
        instances: usize,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let nat = ("nat", "has no effect: no address is translated here");
        let autorate = (
            "autorate-ingress",
            "does not set the rate of several queues",
        );
        let nat = self.nat.then_some(nat);
        let autorate = (self.autorate_ingress && instances > 1).then_some(autorate);
        nat.into_iter().chain(autorate)
    }

    pub(in crate::qdisc) fn check(&self, kind: &'static str) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter(kind, parameter, reason));
        if self
            .bandwidth
            .is_some_and(|rate| !(1..=MAX_RATE).contains(&rate))
        {
            return wrong("bandwidth", "must be between 1 byte/s and 1 Tbyte/s");
        }
        // As in the kernel: 32 bits of microseconds.
        let most = Duration::from_micros(u32::MAX.into());
        if !(Duration::from_micros(1)..=most).contains(&self.rtt) {
            return wrong("rtt", "must be 1 us to 4294 s");
        }
        if self.target.is_some_and(|target| target > most) {
            return wrong("target", "must be at most 4294 s");
        }
        if self.memlimit == Some(0) {
            return wrong("memlimit", "must be at least 1 byte");
        }
        if kind == "cake_mq" && self.autorate_ingress {
            return wrong(
                "autorate_ingress",
                "is not for cake_mq: each queue sees a part only",
            );
        }
        Ok(())
    }
}

/// The options of a kind with these parameters.
macro_rules! options_of {
    ($kind:ident) => {
        options! { QdiscSpec::$kind(s) =>
            /// a rate
            "bandwidth": Form::Rate => s.bandwidth; unset = Unset::Words("unlimited"),
            /// follow the rate of what arrives, from `bandwidth` on; for one queue
            "autorate_ingress": Form::Flag => s.autorate_ingress,
            /// tins: `"diffserv3"`, `"diffserv4"`, `"diffserv8"`, `"besteffort"` or `"precedence"`
            "diffserv": Form::Word(Diffserv::WORDS) => s.diffserv,
            /// queues and hosts: `"flowblind"`, `"srchost"`, `"dsthost"`, `"hosts"`, `"flows"`,
            /// `"dual-srchost"`, `"dual-dsthost"` or `"triple-isolate"`
            "isolation": Form::Word(Isolation::WORDS) => s.isolation,
            /// without effect: no address is translated here
            "nat": Form::Flag => s.nat,
            /// clear the code points (DSCP)
            "wash": Form::Flag => s.wash,
            /// count what is dropped against the rate, too
            "ingress": Form::Flag => s.ingress,
            /// drop needless acknowledgments of TCP: `"no-ack-filter"`, `"ack-filter"` or
            /// `"ack-filter-aggressive"`
            "ack_filter": Form::Word(AckFilter::WORDS) => s.ack_filter,
            /// cut large frames into their wire packets
            "split_gso": Form::Flag => s.split_gso,
            /// a time, about the round trip of the flows
            "rtt": Form::Time => s.rtt,
            /// a time; the delay that may last
            "target": Form::Time => s.target; unset = Unset::Words("a twentieth of `rtt`"),
            /// bytes that the link adds to each IP packet, -64 to 256
            "overhead": Form::Own;
                unset = Unset::Words("packets count as they are, Ethernet header included");
                wrong = "\"x\"",
            /// the least bytes that a packet counts as
            "mpu": Form::Size => s.mpu; wrong = "-1",
            /// framing of the link: `"noatm"`, `"atm"` (cells of 53 bytes) or `"ptm"`
            "linklayer": Form::Word(Framing::WORDS) => s.framing,
            /// a size; bytes of buffers
            "memlimit": Form::Size => s.memlimit;
                unset = Unset::Words("four times what leaves in `rtt`, at least 4m");
                wrong = "\"8g\"",
            /// bits of a packet's mark that say its tin, from 1 on in `tc`'s order
            "fwmark": Form::Mask("a mask like \"0xff\"") => s.fwmark,
        }
    };
}

pub(super) const OPTIONS: &[QdiscOption] = options_of!(Cake);
pub(in crate::qdisc) const OPTIONS_MQ: &[QdiscOption] = options_of!(CakeMq);
