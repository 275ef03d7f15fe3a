//! Softnet: a standalone device with one transmit queue. Senders run the queue; its helper thread does what they leave.

use softnet::packet::PacketList;
use softnet::pool::Pool;
use softnet::qdisc::QdiscSpec;
use softnet::time::Time;
use softnet::tx::{DeviceConfig, Features, ServedBy, Standalone, TxPolicy, XmitResult};

use super::fq::Fq;
use super::path::{Discipline, Path, Sink};
use super::ticks::Ticks;
use crate::error::BenchError;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Softnet {
    standalone: Standalone<Sink>,
}

impl Softnet {
    pub(crate) fn new(
        discipline: Discipline,
        packets: usize,
        sink: Sink,
        ticks: &Ticks,
        pool: &Pool,
        served_by: ServedBy,
    ) -> Result<Softnet, BenchError> {
        let config = DeviceConfig {
            name: "bench".to_owned(),
            features: Features::default(),
            qdisc: QdiscSpec::Pfifo {
                limit: packets as u32,
            },
            policy: TxPolicy {
                max_burst: packets,
                served_by,
                ..TxPolicy::default()
            },
        };
        let standalone = Standalone::start(config, vec![sink], pool, ticks.clock())
            .map_err(|e| BenchError::Measure(e.to_string()))?;
        if discipline == Discipline::Fq {
            let fq = Box::new(Fq::new(packets as u64));
            standalone.device().set_custom_qdisc(0, fq, ticks.now());
        }
        Ok(Softnet { standalone })
    }
}

impl Path for Softnet {
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, now: Time, _: &mut u64) -> u64 {
        let count = packets.len() as u64;
        match self.standalone.device().transmit(packets, now) {
            // The discipline's limit is never reached, so all of them were refused at the adoption list.
            XmitResult::Drop => count,
            XmitResult::Success | XmitResult::Congestion => 0,
        }
    }

    fn dropped(&self) -> u64 {
        self.standalone.device().drops().total()
    }
}
