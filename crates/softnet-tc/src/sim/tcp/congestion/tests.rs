use super::*;
use crate::sim::flow::Random;

fn acked(now: Time, segments: u32, flight: u32, is_round: bool) -> Acked {
    Acked {
        now,
        segments,
        marked: 0,
        rtt: Some(100_000_000),
        flight,
        rate: f64::INFINITY,
        is_round,
        in_recovery: false,
        recovers: false,
        lost: 0,
    }
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_a_round() {
    let mut reno = Congestion::new(Algorithm::Reno);
    reno.acked(acked(Time(1), 10, 10, true));
    assert_eq!(reno.window(), 20);
    reno.congested(20);
    assert_eq!(reno.window(), 10);
    for _ in 0..10 {
        reno.acked(acked(Time(1), 1, 10, false));
    }
    assert!((10.9..11.1).contains(&reno.window), "{}", reno.window);
    reno.timed_out(10, false);
    assert_eq!((reno.window(), reno.threshold), (1, 5.0));
    reno.timed_out(1, true);
    assert_eq!((reno.window(), reno.threshold), (1, 5.0));
}

/// RFC 9438, figure 1 and section 5: after a reduction at W_max the window is back there after
/// K seconds, flat around it, and grows faster beyond.
#[test]
fn cubic_is_back_at_its_window_after_k() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    (cubic.window, cubic.threshold) = (1000.0, 1000.0);
    cubic.congested(1000);
    assert!((cubic.window - 700.0).abs() < 1e-9);
    let k = (300.0_f64 / 0.4).cbrt();
    let (mut at, mut at_k) = (0.0, 0.0);
    while at < 1.5 * k {
        at += 0.1;
        let window = cubic.window;
        let now = Time((at * 1e9) as u64);
        cubic.acked(acked(now, window as u32, window as u32, true));
        if at < k {
            at_k = cubic.window;
        }
    }
    assert!((at_k - 1000.0).abs() < 10.0, "{at_k}");
    assert!(cubic.window > 1030.0, "{}", cubic.window);
}

/// After a slow start without a loss it goes on by 5 % a round trip, until there is one.
#[test]
fn cubic_looks_for_its_first_loss() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    (cubic.window, cubic.threshold) = (100.0, 100.0);
    cubic.acked(acked(Time(1), 100, 100, true));
    assert!((cubic.window - 105.0).abs() < 1e-9, "{}", cubic.window);
    cubic.congested(105);
    assert_eq!(cubic.window, 73.0);
    cubic.acked(acked(Time(2), 146, 73, true));
    // One for each 24 segments; at 5 % it were one for each 20.
    assert_eq!(cubic.window, 79.0);
    cubic.timed_out(75, false);
    (cubic.window, cubic.threshold) = (40.0, 40.0);
    cubic.acked(acked(Time(3), 40, 40, true));
    assert!((cubic.window - 42.0).abs() < 1e-9, "{}", cubic.window);
}

/// In Reno's region the window grows by alpha, also where it is beyond the one before a loss; and
/// it is ahead by the least round trip, not by what queues add to it.
#[test]
fn cubic_grows_in_renos_region_as_linux_does() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    (cubic.window, cubic.threshold) = (10.0, 10.0);
    cubic.congested(10);
    for round in 1..=20 {
        let window = cubic.window();
        cubic.acked(acked(Time(round * 40_000_000), window, window, true));
    }
    // From 7, by 0.53 each time; 24 were it one beyond 10.
    assert!((17.0..20.0).contains(&cubic.window), "{}", cubic.window);
    let grown = |rtts: [u64; 2]| {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        (cubic.window, cubic.threshold) = (1000.0, 1000.0);
        cubic.congested(1000);
        for rtt in rtts {
            let rtt = Some(rtt);
            let of_all = acked(Time(1), 700, 700, true);
            cubic.acked(Acked { rtt, ..of_all });
        }
        cubic.window
    };
    assert_eq!(grown([100_000_000, 5_000_000_000]), grown([100_000_000; 2]));
}

/// Acknowledgments that come for more than half of a round trip end a slow start, but not that
/// of a restart later on; after a timeout they do again.
#[test]
fn a_train_of_acknowledgments_ends_slow_start_once() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    cubic.window = 20.0;
    // Two milliseconds apart, from 1 s on, behind a pause.
    let train = |cubic: &mut Congestion, from: u64| {
        for number in 0..30 {
            let now = Time(from + number * 2_000_000);
            cubic.acked(acked(now, 1, cubic.window(), number == 0));
        }
    };
    train(&mut cubic, 1_000_000_000);
    // Half of 100 ms is over with the 27th.
    assert_eq!(cubic.threshold, 46.0);
    (cubic.window, cubic.threshold) = (20.0, 1000.0);
    train(&mut cubic, 2_000_000_000);
    assert_eq!((cubic.threshold, cubic.window), (1000.0, 50.0));
    cubic.timed_out(50, false);
    (cubic.window, cubic.threshold) = (20.0, 1000.0);
    train(&mut cubic, 3_000_000_000);
    assert_eq!(cubic.threshold, 46.0);
}

/// Windows are of whole segments. How fast one grows is found when it changes, else 32 times a
/// second.
#[test]
fn cubic_counts_whole_segments() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    (cubic.window, cubic.threshold) = (10.0, 10.0);
    cubic.congested(10);
    let grown = (0..37).map(|millis| {
        cubic.acked(acked(Time(millis * 1_000_000), 2, 10, false));
        cubic.window
    });
    let grown: Vec<f64> = grown.collect();
    // One for seven segments; then Reno's window, which grows by one for 13 to 15, is ahead by two
    // as that is found.
    assert_eq!(
        [grown[2], grown[3], grown[35], grown[36]],
        [7.0, 8.0, 8.0, 10.0]
    );
}

/// Bursts that pacing would allow make acknowledgments late, by 1 ms at most.
#[test]
fn a_train_of_acknowledgments_may_be_late() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    cubic.window = 20.0;
    for number in 0..20 {
        let acked = acked(Time(number * 500_000), 1, cubic.window(), number == 0);
        let rtt = Some(10_000_000);
        cubic.acked(Acked { rtt, ..acked });
    }
    // Half of 11 ms is over with the 13th; of 10 ms it were with the 12th.
    assert_eq!(cubic.threshold, 32.0);
}

/// A segment that was sent twice tells no round-trip time (Karn). Where all of the
/// first segments were, a path of which nothing is known is not one without length.
#[test]
fn bbr_knows_no_round_trip_before_one_was_measured() {
    let mut bbr = Congestion::new(Algorithm::Bbr);
    let acked = |now, rtt, rate| Acked {
        rtt,
        rate,
        ..acked(now, 10, 10, true)
    };
    bbr.acked(acked(Time(1), None, 500.0));
    assert_eq!(bbr.window(), 10);
    bbr.acked(acked(Time(100_000_001), Some(100_000_000), 1000.0));
    // 2.885 times 1000 segments a second for 100 ms.
    assert_eq!(bbr.window(), 288);
}

/// Linux's `packet_conservation`: a round long a recovery sends no more than is delivered, then it
/// goes on as before.
#[test]
fn bbr_conserves_packets_as_a_recovery_begins() {
    let mut bbr = Congestion::new(Algorithm::Bbr);
    let mut window = |flight, is_round, recovers, lost| {
        bbr.acked(Acked {
            rate: 1000.0,
            recovers,
            lost,
            ..acked(Time(100_000_001), 2, flight, is_round)
        });
        bbr.window()
    };
    assert_eq!(window(100, true, false, 0), 288);
    assert_eq!(window(90, false, true, 8), 92, "in flight, and arrived");
    assert_eq!(window(60, false, true, 0), 92, "what is lost is sent again");
    assert_eq!(window(60, false, true, 20), 72, "one for each delivered");
    assert_eq!(window(80, true, true, 0), 288, "a round later");
    assert_eq!(window(80, false, true, 1), 288, "the same recovery");
    window(80, true, false, 0);
    assert_eq!(window(80, false, true, 1), 82, "another one");
    bbr.timed_out(80, false);
    let again = acked(Time(100_000_002), 1, 0, false);
    bbr.acked(Acked {
        rate: 1000.0,
        recovers: true,
        ..again
    });
    assert_eq!(bbr.window(), 288, "the timer's has none");
}

/// Where a share p of segments is marked, DCTCP's window is 2/p, which `dualpi2`'s coupling counts
/// with; a little more, as a round without a mark reduces nothing.
#[test]
fn dctcps_window_is_two_by_the_share_of_marks() {
    for share in [0.2, 0.1, 0.07] {
        let mut random = Random(7);
        let mut dctcp = Congestion::new(Algorithm::Dctcp);
        (dctcp.window, dctcp.threshold) = (20.0, 20.0);
        let (mut until, mut rounds) = (0, 0);
        let segments = 100_000;
        for number in 0..segments {
            let is_round = number >= until;
            if is_round {
                (until, rounds) = (number + u64::from(dctcp.window()), rounds + 1);
            }
            let marked = u32::from(random.uniform() < share);
            let one = acked(Time(number), 1, dctcp.window(), is_round);
            dctcp.acked(Acked { marked, ..one });
        }
        let product = segments as f64 / f64::from(rounds) * share;
        assert!((1.8..2.4).contains(&product), "{share}: {product}");
    }
}

#[test]
fn dctcp_reduces_by_the_share_of_marks() {
    let mut dctcp = Congestion::new(Algorithm::Dctcp);
    (dctcp.window, dctcp.threshold) = (100.0, 50.0);
    dctcp.dctcp.alpha = 0.0;
    let mut marked = acked(Time(1), 100, 100, true);
    marked.marked = 16;
    dctcp.acked(marked);
    // alpha = 0.16 / 16: half a percent less, and one more for the round.
    assert!((dctcp.window - 100.5).abs() < 0.01, "{}", dctcp.window);
}
