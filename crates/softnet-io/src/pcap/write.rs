//! The file that is written: the transmit queue hands packets to a thread.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{RingWaker, Sent, TxRing, Xmit};

use super::PcapError;
use crate::middleware::PcapWriter;
use crate::rights;

/// Packets that wait to be written.
const SLOTS: usize = 1024;
/// Most bytes of a packet that are written.
const SNAPLEN: u32 = 262_144;

/// A file that is written, and its thread, which ends when all is written.
#[derive(Debug)]
pub(super) struct Writer {
    to: Option<SyncSender<(Time, Packet)>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    waker: OnceLock<RingWaker>,
    /// The file cannot be written any more. Relaxed: it says nothing of other memory.
    failed: AtomicBool,
}

impl Writer {
    pub(super) fn start(path: &Path) -> Result<Writer, PcapError> {
        let open = |source| PcapError::Open {
            path: path.to_owned(),
            what: "written",
            source,
        };
        let file = super::open::open(path, true).map_err(open)?;
        // Times are since 1970.
        let mut file = PcapWriter::new(BufWriter::new(file), 0, SNAPLEN).map_err(open)?;
        file.flush().map_err(open)?;
        let (to, from) = sync_channel(SLOTS);
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("pcap write".to_owned())
                .spawn(move || {
                    rights::port_thread();
                    write(&from, file, &shared);
                })?
        };
        Ok(Writer {
            to: Some(to),
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Writes what comes, and writes it out whenever nothing more waits.
fn write(from: &Receiver<(Time, Packet)>, mut file: PcapWriter<BufWriter<File>>, shared: &Shared) {
    let mut list = PacketList::new();
    loop {
        let next = match from.try_recv() {
            Err(TryRecvError::Empty) => {
                // In one go.
                list = PacketList::new();
                if file.flush().is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                wake(shared);
                from.recv().map_err(|_| TryRecvError::Disconnected)
            }
            next => next,
        };
        let Ok((time, packet)) = next else {
            break;
        };
        if file.write(time, &packet).is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        list.push_back(packet);
        if list.len() >= SLOTS / 4 {
            list = PacketList::new();
            wake(shared);
        }
    }
    drop(list);
    if file.flush().is_err() {
        shared.failed.store(true, Ordering::Relaxed);
    }
}

fn wake(shared: &Shared) {
    if let Some(waker) = shared.waker.get() {
        waker.wake();
    }
}

/// The transmit queue of a port.
#[derive(Debug)]
pub struct PcapTx {
    writer: Option<Writer>,
}

impl PcapTx {
    pub(super) fn new(writer: Option<Writer>) -> PcapTx {
        PcapTx { writer }
    }
}

impl TxRing for PcapTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let Some(writer) = &self.writer else {
            let taken = packets.take();
            taken.iter().for_each(|packet| sent.count(packet));
            return Xmit::Complete;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Time(now.map_or(0, |now| now.as_nanos() as u64));
        while let Some(packet) = packets.pop_front() {
            if writer.shared.failed.load(Ordering::Relaxed) {
                sent.drop(DropReason::DriverRefused, &packet);
                continue;
            }
            let Some(to) = &writer.to else { break };
            let (bytes, wire_packets) = packet.wire();
            match to.try_send((now, packet)) {
                Ok(()) => {
                    sent.packets += wire_packets;
                    sent.bytes += bytes;
                }
                Err(TrySendError::Full((_, packet)) | TrySendError::Disconnected((_, packet))) => {
                    packets.push_front(packet);
                    return Xmit::Busy;
                }
            }
        }
        Xmit::Complete
    }

    fn bind(&mut self, waker: RingWaker) {
        if let Some(writer) = &self.writer {
            let _ = writer.shared.waker.set(waker);
        }
    }
}
