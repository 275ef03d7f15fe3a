use super::receiver::{DELAYED, QUICK, ROOM, ROOM_BOUND};
use super::timers::RETRIES;
use super::*;

/// A pipe of a rate and a round-trip time that loses every nth segment.
fn run(algorithm: Algorithm, seconds: u64, rate: u64, rtt: u64, lose: u64) -> Sender {
    run_from(algorithm, (seconds, seconds), rate, rtt, lose).0
}

/// The same; the second is what was delivered up to the first of two times, in seconds.
fn run_from(
    algorithm: Algorithm,
    (middle, seconds): (u64, u64),
    rate: u64,
    rtt: u64,
    lose: u64,
) -> (Sender, u64) {
    let mut before = 0;
    let mut sender = Sender::new(algorithm, u64::MAX, false);
    let mut receiver = Receiver::default();
    let mut arrivals: VecDeque<(Time, u64)> = VecDeque::new();
    let mut acks: VecDeque<(Time, Acknowledgment)> = VecDeque::new();
    let (mut now, mut free, mut count) = (Time::ZERO, Time::ZERO, 0_u64);
    let end = Time(seconds * 1_000_000_000);
    while now < end {
        if now < Time(middle * 1_000_000_000) {
            before = sender.stats.delivered;
        }
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
            let told = receiver.arrived(now, number, false, 0);
            acks.extend(told.map(|ack| (now, ack)));
        } else if receiver.due().is_some_and(|due| due <= now) {
            acks.extend(receiver.acknowledge().map(|ack| (now, ack)));
        } else if acks.front().is_some_and(|&(at, _)| at <= now) {
            let (_, told) = acks.pop_front().expect("there");
            sender.acknowledged(now, &told.numbers, told.marked);
        } else if sender.timeout_at().is_some_and(|at| at <= now) {
            let probe = sender.timed_out(now);
            arrivals.extend(probe.map(|number| (now.plus_nanos(rtt), number)));
        }
    }
    (sender, before)
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

/// RFC 9438, section 5.1 and 5.2: Cubic's average window by the share of segments lost, with C =
/// 0.4, in Reno's region and beyond it; within 15 %, of short ones within 25 %: Linux's arithmetic
/// in whole segments brings a window back to its last maximum sooner, by up to one segment.
#[test]
fn cubics_window_is_that_of_the_tables() {
    let rows = [
        // Round trip, ms; one loss in so many segments; average window; seconds.
        (100, 100, 12.0, 400),
        (100, 1_000, 38.0, 400),
        (100, 10_000, 187.0, 450),
        (100, 100_000, 1054.0, 100),
        (10, 1_000, 38.0, 100),
        (10, 10_000, 120.0, 40),
        (10, 100_000, 379.0, 40),
    ];
    for (millis, lose, window, seconds) in rows {
        let rtt = millis * 1_000_000;
        let times = (seconds / 3, seconds);
        let (sender, before) = run_from(Algorithm::Cubic, times, 1_000_000_000, rtt, lose);
        let rate = (sender.stats.delivered - before) as f64 / (times.1 - times.0) as f64;
        let ratio = rate * millis as f64 / 1e3 / window;
        let allowed = if window < 50.0 { 0.25 } else { 0.15 };
        assert!(
            (1.0 - allowed..1.0 + allowed).contains(&ratio),
            "{millis} ms, 1/{lose}: {ratio}"
        );
    }
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
        assert_eq!(sender.timed_out(now), None);
    }
    let gaps: Vec<_> = times
        .windows(2)
        .map(|two| two[1].since(two[0]).as_secs())
        .collect();
    assert_eq!(gaps, [2, 4, 8, 16]);
    assert_eq!(sender.stats.timeouts, 5);
}

/// A way that lets nothing pass, such as a filter that drops: without an end of the sender's tries
/// a simulation had none.
#[test]
fn a_way_without_hope_is_given_up() {
    let mut sender = Sender::new(Algorithm::Cubic, 100, false);
    let mut now = Time::ZERO;
    while sender.send(now).is_some() {}
    while let Some(at) = sender.timeout_at() {
        assert!(sender.stats.timeouts < 100, "it goes on for ever");
        now = at;
        assert_eq!(sender.timed_out(now), None);
        while sender.send(now).is_some() {}
    }
    assert_eq!(sender.stats.timeouts, u64::from(RETRIES) + 1);
    assert!(now > Time(900_000_000_000), "{now:?}");
    assert!(sender.is_idle() && sender.paced_at().is_none());
    assert_eq!(sender.acknowledged_up_to(), 0);
    // What was on its way all the same.
    sender.acknowledged(now.plus_nanos(1), &[0, 1, 9], 0);
    assert_eq!(
        (sender.acknowledged_up_to(), sender.stats.delivered),
        (0, 0)
    );
    assert_eq!(sender.send(now.plus_nanos(1)), None);
}

/// As long as time has numbers: no sum of such round trips overflows.
#[test]
fn the_longest_round_trip_has_a_timer() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut sender = Sender::new(algorithm, u64::MAX, false);
        let sent: Vec<u64> = std::iter::from_fn(|| sender.send(Time::ZERO)).collect();
        let now = Time(u64::MAX / 2);
        sender.acknowledged(now, &sent, 0);
        assert!(sender.send(now).is_some(), "{algorithm:?}");
        assert!(sender.timeout_at() > Some(now), "{algorithm:?}");
    }
}

#[test]
fn what_arrives_is_acknowledged_by_twos() {
    let mut receiver = Receiver::with_window(65_536);
    let first = u64::from(QUICK);
    let told = |numbers: &[u64], marked| {
        Some(Acknowledgment {
            numbers: numbers.to_vec(),
            marked,
            window: 65_536,
        })
    };
    for number in 0..first {
        let at_once = receiver.arrived(Time(1), number, false, 0);
        assert_eq!(at_once, told(&[number], 0), "one by one");
    }
    let mut arrived = |time, number: u64, is_marked| {
        let told = receiver.arrived(Time(time), first + number, is_marked, 0);
        told.map(|told| (told.numbers, told.marked))
    };
    let told = |all: &[u64], marked| Some((all.iter().map(|n| first + n).collect(), marked));
    assert_eq!(arrived(1, 0, false), None);
    assert_eq!(arrived(2, 1, false), told(&[0, 1], 0));
    assert_eq!(arrived(3, 3, false), told(&[3], 0), "out of order");
    assert_eq!(arrived(4, 4, false), told(&[4], 0), "behind a hole");
    assert_eq!(arrived(4, 2, false), told(&[2], 0), "the hole");
    assert_eq!(arrived(4, 5, true), told(&[5], 1), "a mark");
    assert_eq!(arrived(5, 6, false), None);
    assert_eq!(receiver.due(), Some(Time(5 + DELAYED)));
    let late = receiver.acknowledge().expect("one that waits");
    assert_eq!((late.numbers, late.marked), (vec![first + 6], 0));
}

/// Linux's `tcp_grow_window` and `tcp_rcv_space_adjust`: an offer grows by two segments with each
/// that arrives, which are acknowledged one by one then, up to what the last round trips brought.
#[test]
fn room_grows_with_what_arrives() {
    let rtt = 20_000_000;
    let mut receiver = Receiver::default();
    assert_eq!(receiver.window(), ROOM * MSS);
    // A round trip each, and the acknowledgments that it causes.
    let mut number = 0;
    let mut round = |receiver: &mut Receiver, at: u64, segments: u64| {
        let mut told = 0;
        for _ in 0..segments {
            told += usize::from(receiver.arrived(Time(at), number, false, rtt).is_some());
            number += 1;
        }
        told
    };
    // Up to what fits for sure. The four from the seventh on are of the sixteen.
    assert_eq!(round(&mut receiver, rtt, 10), 10);
    assert_eq!(receiver.window(), ROOM_BOUND * MSS);
    // Twelve are left, then by twos. As the round began ten had come, as many as at first.
    assert_eq!(round(&mut receiver, 2 * rtt, 20), 12 + 4);
    assert_eq!(receiver.window(), ROOM_BOUND * MSS);
    // Twenty came instead of ten: room for 40, and two times 40 more. The first waits.
    assert_eq!(round(&mut receiver, 3 * rtt, 32), 31);
    assert_eq!(receiver.window(), 118 * MSS);
    // A second copy of a segment makes no room.
    receiver.arrived(Time(3 * rtt), 0, false, rtt);
    assert_eq!(receiver.window(), 118 * MSS);
    let told = receiver.arrived(Time(3 * rtt), number, false, rtt);
    assert_eq!(told.map(|told| told.window), Some(120 * MSS));
    // That was all.
    let told = receiver.arrived(Time(3 * rtt), number + 1, false, rtt);
    assert_eq!((told, receiver.window()), (None, 120 * MSS));
}

/// The last segments of a transfer have none behind them that tell of their loss: a probe does,
/// long before the timer that sends all again.
#[test]
fn a_lost_tail_is_probed() {
    let mut sender = Sender::new(Algorithm::Cubic, 10, false);
    while sender.send(Time::ZERO).is_some() {}
    let rtt = 20_000_000;
    let mut now = Time(rtt);
    sender.acknowledged(now, &[0, 1, 2, 3, 4, 5], 0);
    now = sender.timeout_at().expect("four in flight");
    assert_eq!(now, Time(3 * rtt + 2_000_000));
    assert_eq!(sender.timed_out(now), Some(9), "the last one again");
    now = now.plus_nanos(rtt);
    sender.acknowledged(now, &[9], 0);
    assert_eq!(sender.send(now), Some(6), "all that was sent long before");
    assert_eq!(sender.stats.timeouts, 0);
}

/// RFC 8985, 7.3: a probe is what was never sent, if there is such and the receiver has room.
#[test]
fn a_probe_sends_something_new() {
    let mut sender = Sender::new(Algorithm::Reno, u64::MAX, false);
    while sender.send(Time::ZERO).is_some() {}
    let now = Time(20_000_000);
    sender.acknowledged(now, &[0, 1], 0);
    while sender.send(now).is_some() {}
    let now = sender.timeout_at().expect("twelve in flight");
    assert_eq!(sender.timed_out(now), Some(14));
    assert_eq!((sender.stats.again, sender.stats.timeouts), (0, 0));
}

/// RFC 8985, 7.4: a loss that a probe made good reduces the window once something behind it
/// arrives, though nothing else tells of it. If what the probe repeats arrived, too, none was lost.
#[test]
fn a_loss_that_a_probe_made_good_reduces_the_window() {
    let windows = [&[8, 9][..], &[8, 9, 9]].map(|told| {
        let mut sender = Sender::new(Algorithm::Reno, 10, false);
        while sender.send(Time::ZERO).is_some() {}
        let rtt = 20_000_000;
        sender.acknowledged(Time(rtt), &(0..8).collect::<Vec<_>>(), 0);
        let now = sender.timeout_at().expect("two in flight");
        assert_eq!(sender.timed_out(now), Some(9));
        let now = now.plus_nanos(rtt);
        sender.acknowledged(now, told, 0);
        sender.more(10);
        while sender.send(now).is_some() {}
        assert_eq!(sender.window(), 10);
        sender.acknowledged(now.plus_nanos(rtt), &[10], 0);
        sender.window()
    });
    assert_eq!(windows, [5, 11]);
}

/// A round begins as the first segment that was sent in it is acknowledged: after a pause, if there
/// is one. Twenty acknowledgments that come for more than half of a round trip end a slow start.
#[test]
fn a_round_begins_with_what_was_sent_in_it() {
    let mut sender = Sender::new(Algorithm::Cubic, u64::MAX, false);
    let at = |millis: u64| Time(millis * 1_000_000);
    while sender.send(at(0)).is_some() {}
    for number in 0..10 {
        let now = at(40 + number);
        sender.acknowledged(now, &[number], 0);
        while sender.send(now).is_some() {}
    }
    assert_eq!(sender.window(), 20);
    for number in 10..30 {
        let now = at(60 + 2 * number);
        sender.acknowledged(now, &[number], 0);
        while sender.send(now).is_some() {}
    }
    // From 80 ms on, until half of 40 ms is over: eleven.
    assert_eq!(sender.window(), 31);
}

/// Acknowledgments that waited for one another come faster than segments were sent.
#[test]
fn a_rate_is_not_above_that_of_sending() {
    let mut sender = Sender::new(Algorithm::Bbr, u64::MAX, false);
    let at = |millis: u64| Time(millis * 1_000_000);
    for number in 0..6 {
        assert_eq!(sender.send(at(10 * number)), Some(number));
    }
    sender.acknowledged(at(60), &[0], 0);
    assert_eq!(sender.send(at(60)), Some(6));
    sender.acknowledged(at(80), &[1, 2, 3, 4, 5, 6], 0);
    // 2/ln 2 times 100 segments a second, less 1 %.
    let gap = sender.congestion.pacing().expect("a rate");
    assert!((3_490_000..3_510_000).contains(&gap), "{gap}");
}

/// A segment that is sent in a recovery and lost reduces the window once that is over, though it
/// was found before (Linux's `tcp_time_to_recover`: something is lost).
#[test]
fn losses_of_a_recovery_reduce_the_window_behind_it() {
    let windows = [true, false].map(|is_lost| {
        let mut sender = Sender::new(Algorithm::Reno, u64::MAX, false);
        let at = |round: u64| Time(round * 20_000_000);
        let send = |sender: &mut Sender, now| {
            std::iter::from_fn(|| sender.send(now)).collect::<Vec<u64>>()
        };
        assert_eq!(send(&mut sender, at(0)).len(), 10);
        sender.acknowledged(at(1), &(0..10).collect::<Vec<_>>(), 0);
        assert_eq!(send(&mut sender, at(1)).len(), 20);
        // The first and the last of twenty are lost; one of those is found.
        sender.acknowledged(at(2), &(11..29).collect::<Vec<_>>(), 0);
        let sent = send(&mut sender, at(2));
        assert_eq!(sent, [10, 30, 31, 32, 33, 34, 35, 36, 37]);
        let told = sent.into_iter().filter(|&number| number != 31 || !is_lost);
        sender.acknowledged(at(3), &told.collect::<Vec<_>>(), 0);
        assert_eq!(sender.congestion.window(), 10);
        let sent = send(&mut sender, at(3));
        assert_eq!(sent[..2], if is_lost { [29, 31] } else { [29, 38] });
        sender.acknowledged(at(4), &[29], 0);
        sender.congestion.window()
    });
    assert_eq!(windows, [5, 10]);
}

/// While a window is reduced, no more is sent than was delivered.
#[test]
fn losses_cause_no_burst() {
    let mut sender = Sender::new(Algorithm::Reno, u64::MAX, false);
    while sender.send(Time::ZERO).is_some() {}
    let mut now = Time(20_000_000);
    sender.acknowledged(now, &(0..10).collect::<Vec<_>>(), 0);
    while sender.send(now).is_some() {}
    // Twenty in flight; twelve of them are lost.
    now = now.plus_nanos(20_000_000);
    let mut sent = 0;
    for number in 22..30 {
        now = now.plus_nanos(1000);
        sender.acknowledged(now, &[number], 0);
        sent += std::iter::from_fn(|| sender.send(now)).count();
        assert!(sent <= number as usize - 20, "{sent} after {number}");
    }
    assert!(sent >= 6, "{sent}");
}

/// Slow start of Cubic ends as the round trip becomes longer, before anything is lost; Reno goes
/// on until something is.
#[test]
fn cubic_ends_its_slow_start_before_losses() {
    let most = |algorithm| {
        let sender = run(algorithm, 2, 1000, 50_000_000, 0);
        assert_eq!(sender.stats.again, 0);
        sender.stats.rtts.summary().max
    };
    let (cubic, reno) = (most(Algorithm::Cubic), most(Algorithm::Reno));
    assert!(cubic < 300_000_000 && reno > 600_000_000, "{cubic} {reno}");
}
