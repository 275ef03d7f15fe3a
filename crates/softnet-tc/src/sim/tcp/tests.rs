use super::*;

/// A pipe of a rate and a round-trip time that loses every nth segment.
fn run(algorithm: Algorithm, seconds: u64, rate: u64, rtt: u64, lose: u64) -> Sender {
    let mut sender = Sender::new(algorithm, u64::MAX, false);
    let mut receiver = Receiver::default();
    let mut arrivals: VecDeque<(Time, u64)> = VecDeque::new();
    let mut acks: VecDeque<(Time, Acknowledgment)> = VecDeque::new();
    let (mut now, mut free, mut count) = (Time::ZERO, Time::ZERO, 0_u64);
    let end = Time(seconds * 1_000_000_000);
    while now < end {
        while let Some(number) = sender.send(now) {
            free = free.max(now).plus_nanos(1_000_000_000 / rate);
            count += 1;
            if lose == 0 || !count.is_multiple_of(lose) {
                arrivals.push_back((free.plus_nanos(rtt), number));
            }
        }
        let times = [
            arrivals.front().map(|&(at, _)| at),
            acks.front().map(|&(at, _)| at),
            receiver.due(),
            sender.timeout_at(),
            sender.paced_at().filter(|&at| at > now),
        ];
        now = times
            .into_iter()
            .flatten()
            .min()
            .expect("something happens")
            .max(now);
        if arrivals.front().is_some_and(|&(at, _)| at <= now) {
            let (_, number) = arrivals.pop_front().expect("there");
            acks.extend(receiver.arrived(now, number, false).map(|ack| (now, ack)));
        } else if receiver.due().is_some_and(|due| due <= now) {
            acks.extend(receiver.acknowledge().map(|ack| (now, ack)));
        } else if acks.front().is_some_and(|&(at, _)| at <= now) {
            let (_, (numbers, marked)) = acks.pop_front().expect("there");
            sender.acknowledged(now, &numbers, marked);
        } else if sender.timeout_at().is_some_and(|at| at <= now) {
            sender.timed_out();
        }
    }
    sender
}

/// Mathis and others 1997: a window of sqrt(3/(2bp)) segments a round trip, b segments an
/// acknowledgment; with losses of every nth segment.
#[test]
fn renos_rate_is_the_square_root_of_its_loss() {
    for lose in [100, 400, 1600] {
        let sender = run(Algorithm::Reno, 300, 1_000_000_000, 100_000_000, lose);
        let rate = sender.stats.delivered as f64 / 300.0;
        let law = (1.5 * lose as f64).sqrt() / 0.1;
        let ratio = rate / law;
        assert!((0.8..1.25).contains(&ratio), "1/{lose}: {rate} of {law}");
    }
}

/// RFC 9438, section 5.1: with rare losses on a long way Cubic is ahead of Reno.
#[test]
fn cubic_is_ahead_on_long_ways() {
    let rate = |algorithm| {
        let sender = run(algorithm, 300, 1_000_000_000, 100_000_000, 10_000);
        sender.stats.delivered as f64 / 300.0
    };
    let (cubic, reno) = (rate(Algorithm::Cubic), rate(Algorithm::Reno));
    assert!(cubic > 1.5 * reno, "{cubic} {reno}");
}

#[test]
fn all_fill_a_pipe_without_loss() {
    for algorithm in [
        Algorithm::Reno,
        Algorithm::Cubic,
        Algorithm::Dctcp,
        Algorithm::Bbr,
    ] {
        let sender = run(algorithm, 20, 1000, 20_000_000, 0);
        let rate = sender.stats.delivered as f64 / 20.0;
        assert!((900.0..1001.0).contains(&rate), "{algorithm:?}: {rate}");
        assert_eq!(sender.stats.timeouts, 0, "{algorithm:?}");
    }
}

/// BBR keeps its queue short where Reno fills whatever there is.
#[test]
fn bbr_keeps_the_round_trip_short() {
    let times = |seconds| {
        let sender = run(Algorithm::Bbr, seconds, 1000, 20_000_000, 0);
        let of = sender.stats.rtts.summary();
        (of.mean * of.frames, of.frames)
    };
    // The second half of the time.
    let ((all, frames), (first, of_first)) = (times(20), times(10));
    let mean = (all - first) / (frames - of_first);
    assert!(mean < 60_000_000, "{mean}");
}

#[test]
fn a_silent_way_is_tried_ever_more_rarely() {
    let mut sender = Sender::new(Algorithm::Cubic, 100, false);
    let mut times = Vec::new();
    let mut now = Time::ZERO;
    for _ in 0..5 {
        while sender.send(now).is_some() {}
        now = sender.timeout_at().expect("in flight");
        times.push(now);
        sender.timed_out();
    }
    let gaps: Vec<_> = times
        .windows(2)
        .map(|two| two[1].since(two[0]).as_secs())
        .collect();
    assert_eq!(gaps, [2, 4, 8, 16]);
    assert_eq!(sender.stats.timeouts, 5);
}

#[test]
fn what_arrives_is_acknowledged_by_twos() {
    let mut receiver = Receiver::default();
    assert_eq!(receiver.arrived(Time(1), 0, false), None);
    assert_eq!(receiver.due(), Some(Time(1 + DELAYED)));
    assert_eq!(receiver.arrived(Time(2), 1, false), Some((vec![0, 1], 0)));
    assert_eq!(
        receiver.arrived(Time(3), 3, false),
        Some((vec![3], 0)),
        "out of order"
    );
    assert_eq!(
        receiver.arrived(Time(4), 4, true),
        Some((vec![4], 1)),
        "a mark"
    );
    assert_eq!(receiver.arrived(Time(5), 5, false), None);
    assert_eq!(receiver.acknowledge(), Some((vec![5], 0)));
}
