//! A driver of which every packet and every answer is told.

use std::fmt;

use softnet::mem::{Packet, PacketList};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::{pass_on_rx, pass_on_tx};

/// An event that a [`Tracer`] reports.
#[derive(Debug)]
pub enum Trace<'a> {
    /// The driver is offered a packet. After [`Xmit::Busy`] it is offered it again.
    Offered(&'a Packet),
    /// The driver's answer, and the packets that it took.
    Sent(Xmit, usize),
    /// The driver received a packet.
    Received(&'a Packet),
    /// The end of a poll.
    Polled(Polled),
}

impl fmt::Display for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut frame = |direction, packet: &Packet| {
            write!(f, "{direction} {} bytes", packet.len())?;
            if let Ok((to, from)) = packet.ethernet() {
                write!(f, ", {from} to {to}")?;
            }
            Ok(())
        };
        match self {
            Trace::Offered(packet) => frame("offered", packet),
            Trace::Received(packet) => frame("received", packet),
            Trace::Sent(xmit, taken) => write!(f, "{taken} taken, {xmit:?}"),
            Trace::Polled(polled) => write!(f, "{polled:?}"),
        }
    }
}

/// A driver of which a function is told everything. It is called on the packet path.
///
/// ```
/// use softnet::mem::{Pool, PoolConfig};
/// use softnet::tx::{Sent, TxRing};
/// use softnet_io::Null;
/// use softnet_io::middleware::Tracer;
///
/// let null = Null::open(1, 1500)?.tx.remove(0);
/// let (tell, told) = std::sync::mpsc::channel();
/// let mut ring = Tracer::new(null, move |trace| tell.send(trace.to_string()).unwrap());
///
/// let pool = Pool::new(PoolConfig { buffers: 4, buffer_size: 2048 })?;
/// let mut packet = pool.alloc()?;
/// packet.append(&[2; 60]);
/// ring.xmit(&mut packet.into(), &mut Sent::default());
/// drop(ring);
/// let told: Vec<_> = told.iter().collect();
/// assert_eq!(told[0], "offered 60 bytes, 02:02:02:02:02:02 to 02:02:02:02:02:02");
/// assert_eq!(told[1], "1 taken, Complete");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tracer<D, F> {
    driver: D,
    tell: F,
}

impl<D, F: FnMut(Trace<'_>) + Send> Tracer<D, F> {
    /// Tells `tell` of what `driver` does.
    pub fn new(driver: D, tell: F) -> Self {
        Tracer { driver, tell }
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Tracer<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracer").field(&self.driver).finish()
    }
}

impl<D: TxRing, F: FnMut(Trace<'_>) + Send> TxRing for Tracer<D, F> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        for packet in &*packets {
            (self.tell)(Trace::Offered(packet));
        }
        let offered = packets.len();
        let xmit = self.driver.xmit(packets, sent);
        (self.tell)(Trace::Sent(xmit, offered - packets.len()));
        xmit
    }

    pass_on_tx!(available restart bind connect file);
}

impl<D: RxQueue, F: FnMut(Trace<'_>) + Send> RxQueue for Tracer<D, F> {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let before = rx.packets().len();
        let polled = self.driver.poll(rx);
        for packet in rx.packets().iter().skip(before) {
            (self.tell)(Trace::Received(packet));
        }
        (self.tell)(Trace::Polled(polled));
        polled
    }

    pass_on_rx!();
}
