//! A reduction of the window in proportion to what is delivered (PRR, RFC 6937).

/// A reduction on its way: segments are sent in proportion to those delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// Segments in flight as it began.
    from: u32,
    delivered: u32,
    /// Segments sent since then.
    pub(super) sent: u32,
    /// Segments that may be in flight now.
    pub(super) window: u32,
}

impl Reduction {
    /// One that begins with so many segments in flight.
    pub(super) fn new(flight: u32) -> Reduction {
        Reduction {
            from: flight.max(1),
            delivered: 0,
            sent: 0,
            window: 0,
        }
    }

    /// So many segments were delivered, `flight` are in flight, and `target` are to be. It
    /// `goes_well` if what was in order among them ended a hole, and no others were found lost.
    pub(super) fn deliver(&mut self, delivered: u32, goes_well: bool, flight: u32, target: u32) {
        self.delivered += delivered;
        let more = if flight > target {
            let due = u64::from(self.delivered) * u64::from(target);
            let due = due.div_ceil(u64::from(self.from));
            u32::try_from(due)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.sent)
        } else {
            let owed = self.delivered.saturating_sub(self.sent);
            (owed.max(delivered) + u32::from(goes_well)).min(target - flight)
        };
        // The first one lost is sent at once.
        self.window = flight + more.max(u32::from(self.sent == 0));
    }
}
