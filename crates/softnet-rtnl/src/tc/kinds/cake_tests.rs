//! Options of `cake` and `cake_mq`: for each of tc's words what tc sends (`tc/q_cake.c`), what it
//! means, and that it is shown as it was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use softnet_tc::{AckFilter, CakeSpec, Diffserv, Framing, Isolation};

use super::tests::{AROUND, shown, with_options};
use super::*;

// `TCA_CAKE_*`.
const RATE: u16 = 2;
const DIFFSERV: u16 = 3;
const ATM: u16 = 4;
const FLOWS: u16 = 5;
const OVERHEAD: u16 = 6;
const RTT: u16 = 7;
const TARGET: u16 = 8;
const AUTORATE: u16 = 9;
const MEMORY: u16 = 10;
const NAT: u16 = 11;
const RAW: u16 = 12;
const WASH: u16 = 13;
const MPU: u16 = 14;
const INGRESS: u16 = 15;
const ACKS: u16 = 16;
const SPLIT: u16 = 17;
const FWMARK: u16 = 18;

/// -64 in 32 bits.
const MINUS_64: u64 = 0xffff_ffc0;

/// Attributes that the kernel shows of a `cake` without options.
const DEFAULTS: [(u16, u64); 17] = [
    (RATE, 0),
    (DIFFSERV, 0),
    (ATM, 0),
    (FLOWS, 7),
    (OVERHEAD, 0),
    (RTT, 100_000),
    (TARGET, 5000),
    (AUTORATE, 0),
    (MEMORY, 0),
    (NAT, 0),
    (RAW, 0),
    (WASH, 0),
    (MPU, 0),
    (INGRESS, 0),
    (ACKS, 0),
    (SPLIT, 1),
    (FWMARK, 0),
];

/// Words of tc, the attributes that it sends for them, and their meaning.
type Case = (&'static str, &'static [(u16, u64)], fn(&mut CakeSpec));

const CASES: &[Case] = &[
    ("no options", &[], |_| {}),
    ("autorate-ingress", &[(AUTORATE, 1)], |s| {
        s.autorate_ingress = true
    }),
    (
        "bandwidth 50mbit",
        &[(RATE, 6_250_000), (AUTORATE, 0)],
        |s| {
            (s.bandwidth, s.autorate_ingress) = (Some(6_250_000), false);
        },
    ),
    (
        "bandwidth 100gbit autorate-ingress",
        &[(RATE, 12_500_000_000), (AUTORATE, 1)],
        |s| (s.bandwidth, s.autorate_ingress) = (Some(12_500_000_000), true),
    ),
    ("unlimited", &[(RATE, 0), (AUTORATE, 0)], |s| {
        (s.bandwidth, s.autorate_ingress) = (None, false);
    }),
    ("diffserv4", &[(DIFFSERV, 1)], |s| {
        s.diffserv = Diffserv::Diffserv4
    }),
    ("diffserv8", &[(DIFFSERV, 2)], |s| {
        s.diffserv = Diffserv::Diffserv8
    }),
    ("besteffort", &[(DIFFSERV, 3)], |s| {
        s.diffserv = Diffserv::Besteffort
    }),
    ("precedence", &[(DIFFSERV, 4)], |s| {
        s.diffserv = Diffserv::Precedence
    }),
    ("diffserv3", &[(DIFFSERV, 0)], |s| {
        s.diffserv = Diffserv::Diffserv3
    }),
    ("flowblind", &[(FLOWS, 0)], |s| {
        s.isolation = Isolation::Flowblind
    }),
    ("srchost", &[(FLOWS, 1)], |s| {
        s.isolation = Isolation::Srchost
    }),
    ("dsthost", &[(FLOWS, 2)], |s| {
        s.isolation = Isolation::Dsthost
    }),
    ("hosts", &[(FLOWS, 3)], |s| s.isolation = Isolation::Hosts),
    ("flows", &[(FLOWS, 4)], |s| s.isolation = Isolation::Flows),
    ("dual-srchost", &[(FLOWS, 5)], |s| {
        s.isolation = Isolation::DualSrchost
    }),
    ("dual-dsthost", &[(FLOWS, 6)], |s| {
        s.isolation = Isolation::DualDsthost
    }),
    ("triple-isolate", &[(FLOWS, 7)], |s| {
        s.isolation = Isolation::Triple
    }),
    ("nat", &[(NAT, 1)], |s| s.nat = true),
    ("nonat", &[(NAT, 0)], |s| s.nat = false),
    ("wash", &[(WASH, 1)], |s| s.wash = true),
    ("nowash", &[(WASH, 0)], |s| s.wash = false),
    ("no-split-gso", &[(SPLIT, 0)], |s| s.split_gso = false),
    ("split-gso", &[(SPLIT, 1)], |s| s.split_gso = true),
    ("ingress", &[(INGRESS, 1)], |s| s.ingress = true),
    ("egress", &[(INGRESS, 0)], |s| s.ingress = false),
    ("ack-filter", &[(ACKS, 1)], |s| {
        s.ack_filter = AckFilter::Filter
    }),
    ("ack-filter-aggressive", &[(ACKS, 2)], |s| {
        s.ack_filter = AckFilter::Aggressive
    }),
    ("no-ack-filter", &[(ACKS, 0)], |s| {
        s.ack_filter = AckFilter::Off
    }),
    ("memlimit 32mb", &[(MEMORY, 32 << 20)], |s| {
        s.memlimit = Some(32 << 20)
    }),
    ("fwmark 0xff00", &[(FWMARK, 0xff00)], |s| s.fwmark = 0xff00),
    ("rtt 50ms", &[(RTT, 50_000), (TARGET, 2500)], |s| {
        s.rtt = Duration::from_millis(50)
    }),
    ("rtt 10us", &[(RTT, 10), (TARGET, 1)], |s| {
        s.rtt = Duration::from_micros(10)
    }),
    ("datacentre", &[(RTT, 100), (TARGET, 5)], |s| {
        s.rtt = Duration::from_micros(100)
    }),
    ("lan", &[(RTT, 1000), (TARGET, 50)], |s| {
        s.rtt = Duration::from_millis(1)
    }),
    ("metro", &[(RTT, 10_000), (TARGET, 500)], |s| {
        s.rtt = Duration::from_millis(10)
    }),
    ("regional", &[(RTT, 30_000), (TARGET, 1500)], |s| {
        s.rtt = Duration::from_millis(30)
    }),
    ("oceanic", &[(RTT, 300_000), (TARGET, 15_000)], |s| {
        s.rtt = Duration::from_millis(300)
    }),
    ("satellite", &[(RTT, 1_000_000), (TARGET, 50_000)], |s| {
        s.rtt = Duration::from_secs(1)
    }),
    (
        "interplanetary",
        &[(RTT, 1_000_000_000), (TARGET, 50_000_000)],
        |s| {
            s.rtt = Duration::from_secs(1000);
        },
    ),
    ("internet", &[(RTT, 100_000), (TARGET, 5000)], |s| {
        s.rtt = Duration::from_millis(100)
    }),
    ("atm", &[(ATM, 1)], |s| s.framing = Framing::Atm),
    ("ptm", &[(ATM, 2)], |s| s.framing = Framing::Ptm),
    ("noatm", &[(ATM, 0)], |s| s.framing = Framing::Plain),
    ("overhead -64", &[(OVERHEAD, MINUS_64)], |s| {
        s.overhead = Some(-64)
    }),
    ("overhead 256", &[(OVERHEAD, 256)], |s| {
        s.overhead = Some(256)
    }),
    ("overhead 0", &[(OVERHEAD, 0)], |s| s.overhead = Some(0)),
    ("mpu 64", &[(MPU, 64)], |s| s.mpu = 64),
    ("conservative", &[(ATM, 1), (OVERHEAD, 48)], |s| {
        on(s, Framing::Atm, 48)
    }),
    ("ipoa-vcmux", &[(ATM, 1), (OVERHEAD, 8)], |s| {
        on(s, Framing::Atm, 8)
    }),
    ("ipoa-llcsnap", &[(ATM, 1), (OVERHEAD, 16)], |s| {
        on(s, Framing::Atm, 16)
    }),
    ("bridged-vcmux", &[(ATM, 1), (OVERHEAD, 24)], |s| {
        on(s, Framing::Atm, 24)
    }),
    ("bridged-llcsnap", &[(ATM, 1), (OVERHEAD, 32)], |s| {
        on(s, Framing::Atm, 32)
    }),
    ("pppoa-vcmux", &[(ATM, 1), (OVERHEAD, 10)], |s| {
        on(s, Framing::Atm, 10)
    }),
    ("pppoa-llc", &[(ATM, 1), (OVERHEAD, 14)], |s| {
        on(s, Framing::Atm, 14)
    }),
    ("pppoe-vcmux", &[(ATM, 1), (OVERHEAD, 32)], |s| {
        on(s, Framing::Atm, 32)
    }),
    ("pppoe-llcsnap", &[(ATM, 1), (OVERHEAD, 40)], |s| {
        on(s, Framing::Atm, 40)
    }),
    ("pppoe-ptm", &[(ATM, 2), (OVERHEAD, 30)], |s| {
        on(s, Framing::Ptm, 30)
    }),
    ("bridged-ptm", &[(ATM, 2), (OVERHEAD, 22)], |s| {
        on(s, Framing::Ptm, 22)
    }),
    ("docsis", &[(ATM, 0), (OVERHEAD, 18), (MPU, 64)], |s| {
        on(s, Framing::Plain, 18);
        s.mpu = 64;
    }),
    ("ethernet ether-vlan", &[(OVERHEAD, 42), (MPU, 84)], |s| {
        (s.overhead, s.mpu) = (Some(42), 84);
    }),
    ("via-ethernet", &[], |_| {}),
    ("raw", &[(ATM, 0), (OVERHEAD, 0), (RAW, 0)], |s| {
        (s.framing, s.overhead) = (Framing::Plain, None);
    }),
];

fn on(spec: &mut CakeSpec, framing: Framing, overhead: i32) {
    (spec.framing, spec.overhead) = (framing, Some(overhead));
}

/// Attributes as they are sent: of 64 bits the rate, of 32 the others.
fn request(sent: &[(u16, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(kind, value) in sent {
        let value = match kind {
            RATE => value.to_ne_bytes().to_vec(),
            _ => (value as u32).to_ne_bytes().to_vec(),
        };
        out.extend((4 + value.len() as u16).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value);
    }
    out
}

fn read(kind: &str, sent: &[(u16, u64)], before: Option<&QdiscSpec>) -> Result<QdiscSpec, Error> {
    with_options(Some(&request(sent)), |options| {
        parse(kind, options, &AROUND, before)
    })
}

/// The attributes that are shown, each of which is there once and of the right size.
fn attributes(spec: &QdiscSpec) -> BTreeMap<u16, u64> {
    let options = shown(spec).unwrap();
    let mut rest = &options[..];
    let mut all = BTreeMap::new();
    while let [l0, l1, k0, k1, ..] = *rest {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let kind = u16::from_ne_bytes([k0, k1]);
        let value = match (kind, &rest[4..length]) {
            (RATE, value) => u64::from_ne_bytes(value.try_into().unwrap()),
            (_, value) => u32::from_ne_bytes(value.try_into().unwrap()).into(),
        };
        assert_eq!(all.insert(kind, value), None, "attribute {kind} twice");
        rest = &rest[length..];
    }
    all
}

/// Adds what is shown after a request: an overhead takes `raw` away.
fn show(all: &mut BTreeMap<u16, u64>, sent: &[(u16, u64)]) {
    if sent.iter().any(|&(kind, _)| kind == OVERHEAD) {
        all.remove(&RAW);
    }
    all.extend(sent.iter().copied());
}

#[test]
fn each_word_is_read_and_shown() {
    for &(words, sent, set) in CASES {
        let mut spec = CakeSpec::default();
        set(&mut spec);
        let spec = QdiscSpec::Cake(spec);
        assert_eq!(read("cake", sent, None), Ok(spec.clone()), "{words}");
        assert_eq!(spec.check(), Ok(()), "{words}");
        let mut all = BTreeMap::from(DEFAULTS);
        show(&mut all, sent);
        assert_eq!(attributes(&spec), all, "{words}");
    }
}

/// A change keeps what it does not name.
#[test]
fn words_add_up() {
    let mut spec = CakeSpec::default();
    let mut qdisc = QdiscSpec::Cake(spec.clone());
    let mut all = BTreeMap::from(DEFAULTS);
    for &(words, sent, set) in CASES {
        qdisc = read("cake", sent, Some(&qdisc)).unwrap();
        set(&mut spec);
        assert_eq!(qdisc, QdiscSpec::Cake(spec.clone()), "{words}");
        show(&mut all, sent);
        assert_eq!(attributes(&qdisc), all, "{words}");
    }
    let all_at_once = [
        (RATE, 1_250_000),
        (DIFFSERV, 2),
        (ATM, 2),
        (FLOWS, 5),
        (OVERHEAD, 30),
        (MPU, 68),
        (RTT, 30_000),
        (TARGET, 1500),
        (AUTORATE, 1),
        (MEMORY, 1 << 20),
        (NAT, 1),
        (WASH, 1),
        (SPLIT, 0),
        (INGRESS, 1),
        (FWMARK, 0xf),
        (ACKS, 2),
    ];
    let qdisc = read("cake", &all_at_once, Some(&qdisc)).unwrap();
    assert_eq!(attributes(&qdisc), BTreeMap::from(all_at_once));
}

/// All but `autorate-ingress`.
#[test]
fn cake_mq_reads_the_same_words() {
    for &(words, sent, set) in CASES {
        let read = read("cake_mq", sent, None);
        if sent.contains(&(AUTORATE, 1)) {
            let error = read.unwrap_err();
            assert_eq!(error.errno, Errno::EOPNOTSUPP);
            let text = "Can't use autorate-ingress with cake_mq";
            assert_eq!(error.text.as_deref(), Some(text));
            continue;
        }
        let mut spec = CakeSpec::default();
        set(&mut spec);
        let spec = QdiscSpec::CakeMq(spec);
        assert_eq!(read, Ok(spec.clone()), "{words}");
        let mut all = BTreeMap::from(DEFAULTS);
        show(&mut all, sent);
        assert_eq!(attributes(&spec), all, "{words}");
    }
}

/// A kernel takes the word, too, and it changes nothing where no address is translated.
#[test]
fn nat_is_taken_with_a_warning() {
    let warning = |nat| {
        let spec = CakeSpec {
            nat,
            ..CakeSpec::default()
        };
        [QdiscSpec::Cake(spec.clone()), QdiscSpec::CakeMq(spec)].map(|of| qdisc_warning(&of, 1))
    };
    let text = "cake: nat has no effect: no address is translated here".to_owned();
    assert_eq!(warning(true), [Some(text.clone()), Some(text)]);
    assert_eq!(warning(false), [None, None]);
}

/// Each instance would see a part of what arrives.
#[test]
fn autorate_of_several_instances_is_warned_of() {
    let spec = QdiscSpec::Cake(CakeSpec {
        nat: true,
        autorate_ingress: true,
        ..CakeSpec::default()
    });
    let texts = [1, 2].map(|instances| qdisc_warning(&spec, instances).unwrap());
    let nat = "cake: nat has no effect: no address is translated here";
    let both = format!("{nat}; autorate-ingress does not set the rate of several queues");
    assert_eq!(texts, [nat.to_owned(), both]);
}
