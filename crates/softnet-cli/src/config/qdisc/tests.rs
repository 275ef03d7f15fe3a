//! Options in tc's words, what they come to, and what is refused.

use std::time::Duration;

use softnet_tc::{FqSpec, LinkCost, LinkLayer};

use super::super::error::{ConfigError, Problem};
use super::super::parse_tree;
use super::*;

fn read(text: &str) -> Result<QdiscSpec, ConfigError> {
    parse_tree("x.toml", &format!("qdisc = {{ {text} }}"))
}

fn tbf(text: &str) -> TbfSpec {
    match read(text) {
        Ok(QdiscSpec::Tbf(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn limit_follows_from_latency_as_in_tc() {
    let spec = tbf(r#"kind = "tbf", rate = "100mbit", burst = "32k", latency = "50ms""#);
    let limit = 12_500_000 / 20 + 32_768;
    assert_eq!(
        spec,
        TbfSpec {
            rate: 12_500_000,
            burst: 32_768,
            limit,
            peakrate: None,
            mtu: 0,
            link: Default::default()
        }
    );
    let spec = tbf(concat!(
        r#"kind = "tbf", rate = "1mbit", burst = "10k", "#,
        r#"latency = "1s", peakrate = "2mbit", mtu = 1540"#
    ));
    assert_eq!(spec.limit, 125_000 + 10_240, "the smaller of both");
    assert_eq!((spec.peakrate, spec.mtu), (Some(250_000), 1540));
    let spec = tbf(r#"kind = "tbf", rate = 8000, burst = 2000, limit = "1kb""#);
    assert_eq!((spec.rate, spec.burst, spec.limit), (1000, 2000, 1024));
}

#[test]
fn simple_kinds_and_their_defaults() {
    assert_eq!(read(r#"kind = "noqueue""#), Ok(QdiscSpec::Noqueue));
    assert_eq!(
        read(r#"kind = "pfifo_fast""#),
        Ok(QdiscSpec::PfifoFast { limit: 1000 })
    );
    assert_eq!(
        read(r#"kind = "pfifo""#),
        Ok(QdiscSpec::Pfifo { limit: 1000 })
    );
    assert_eq!(
        read(r#"kind = "pfifo", limit = "1k""#),
        Ok(QdiscSpec::Pfifo { limit: 1024 })
    );
    assert_eq!(
        read(r#"kind = "bfifo""#),
        Ok(QdiscSpec::Bfifo { limit: 1_514_000 })
    );
    assert_eq!(
        read(r#"kind = "bfifo", limit = 9000"#),
        Ok(QdiscSpec::Bfifo { limit: 9000 })
    );
}

#[test]
fn prio_and_framing() {
    let prio = |text: &str| match read(text) {
        Ok(QdiscSpec::Prio(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(prio(r#"kind = "prio""#), PrioSpec::default());
    let spec = prio(r#"kind = "prio", bands = 2, priomap = "1 1 1 1 1 1 0 0 1 1 1 1 1 1 1 1""#);
    assert_eq!(
        (
            spec.bands,
            spec.priomap[6],
            spec.priomap[7],
            spec.priomap[8]
        ),
        (2, 0, 0, 1)
    );
    let spec = prio(r#"kind = "prio", bands = "4", priomap = [3,3,3,3,3,3,0,0,1,1,1,1,1,1,1,2]"#);
    assert_eq!((spec.bands, spec.priomap[0], spec.priomap[15]), (4, 3, 2));
    let spec = tbf(concat!(
        r#"kind = "tbf", rate = "1mbit", burst = "10k", limit = "10k", "#,
        r#"overhead = 38, mpu = 84, linklayer = "adsl""#
    ));
    let link = LinkCost {
        overhead: 38,
        mpu: 84,
        linklayer: LinkLayer::Atm,
    };
    assert_eq!(spec.link, link);
}

#[test]
fn codel_and_fq_codel() {
    assert_eq!(
        read(r#"kind = "codel""#),
        Ok(QdiscSpec::Codel(CodelSpec::default()))
    );
    let all = concat!(
        r#"limit = 7, target = "3ms", interval = 50000, ecn = false, "#,
        r#"ce_threshold = "500us", ce_threshold_selector = "0x1/3""#
    );
    let aqm = AqmSpec {
        target: Duration::from_millis(3),
        interval: Duration::from_millis(50),
        ecn: false,
        ce_threshold: Some(Duration::from_micros(500)),
        ce_threshold_selector: 1,
        ce_threshold_mask: 3,
    };
    let codel = CodelSpec {
        limit: 7,
        aqm: aqm.clone(),
    };
    let text = format!(r#"kind = "codel", {all}"#);
    assert_eq!(read(&text), Ok(QdiscSpec::Codel(codel)));
    let more = r#"flows = 64, quantum = 300, memory_limit = "4m", drop_batch = 8"#;
    let fq_codel = FqCodelSpec {
        limit: 7,
        memory_limit: 4 << 20,
        flows: 64,
        quantum: Some(300),
        drop_batch: 8,
        aqm,
    };
    let text = format!(r#"kind = "fq_codel", {all}, {more}"#);
    assert_eq!(read(&text), Ok(QdiscSpec::FqCodel(fq_codel)));
}

#[test]
fn fq() {
    assert_eq!(read(r#"kind = "fq""#), Ok(QdiscSpec::Fq(FqSpec::default())));
    let text = concat!(
        r#"kind = "fq", limit = 7, flow_limit = 8, quantum = "3k", initial_quantum = 9000, "#,
        r#"orphan_mask = "0xff", refill_delay = "1ms", pacing = false, maxrate = "8mbit", "#,
        r#"low_rate_threshold = "80kbit", timer_slack = 20, horizon = "2s", "#,
        r#"horizon_drop = false, ce_threshold = "3ms", "#,
        r#"priomap = "0 1 2 0 0 0 0 0 0 0 0 0 0 0 0 0", weights = [20000, 30000, 40000]"#
    );
    let mut priomap = [0; 16];
    (priomap[1], priomap[2]) = (1, 2);
    let spec = FqSpec {
        limit: 7,
        flow_limit: 8,
        quantum: Some(3072),
        initial_quantum: Some(9000),
        orphan_mask: 255,
        refill_delay: Duration::from_millis(1),
        pacing: false,
        maxrate: Some(1_000_000),
        low_rate_threshold: 10_000,
        timer_slack: Duration::from_micros(20),
        horizon: Duration::from_secs(2),
        horizon_drop: false,
        ce_threshold: Some(Duration::from_millis(3)),
        priomap,
        weights: [20_000, 30_000, 40_000],
        ..FqSpec::default()
    };
    assert_eq!(read(text), Ok(QdiscSpec::Fq(spec)));
}

#[test]
fn errors_name_the_option() {
    for (text, key, part) in [
        (r#"rate = "1mbit""#, "kind", "is missing"),
        (r#"kind = "choke""#, "kind", "not a qdisc"),
        (r#"kind = 7"#, "kind", "the number 7"),
        (
            r#"kind = "pfifo", limit = "10p""#,
            "limit",
            "unit of a size",
        ),
        (r#"kind = "pfifo", limit = -1"#, "limit", "not a number"),
        (r#"kind = "pfifo", limit = [1]"#, "limit", "a list"),
        (r#"kind = "pfifo", limit = "99g""#, "limit", "too large"),
        (r#"kind = "pfifo_fast", bands = 3"#, "bands", "no options"),
        (
            r#"kind = "tbf", rate = "1mbit", burst = "9k""#,
            "latency",
            "is missing",
        ),
        (
            r#"kind = "tbf", burst = "9k", limit = 9"#,
            "rate",
            "is missing",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", limit = 9"#,
            "burst",
            "is missing",
        ),
        (
            r#"kind = "tbf", rate = "9%", burst = "9k", limit = 9"#,
            "rate",
            "percentage",
        ),
        (
            r#"kind = "tbf", rate = 1, burst = "9k", limit = 9"#,
            "rate",
            "1 byte/s",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", burst = 0, limit = 9"#,
            "burst",
            "burst",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, latency = 9"#,
            "latency",
            "keep one",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, mtu = 9"#,
            "mtu",
            "no effect",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, peakrate = "2mbit""#,
            "mtu",
            "peakrate needs it",
        ),
        (
            concat!(
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, "#,
                r#"peakrate = "1mbit", mtu = 9"#
            ),
            "peakrate",
            "higher",
        ),
        (r#"kind = "prio", bands = 17"#, "bands", "2 to 16"),
        (r#"kind = "prio", bands = 2"#, "priomap", "bands 0 to 2"),
        (
            r#"kind = "prio", priomap = [1, 2]"#,
            "priomap",
            "list of 16",
        ),
        (
            r#"kind = "prio", bands = 2, priomap = "2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0""#,
            "priomap",
            "bands 0 to 1",
        ),
        (
            r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, overhead = -1"#,
            "overhead",
            "0 to 65535",
        ),
        (
            concat!(
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, "#,
                r#"linklayer = "carrier pigeon""#
            ),
            "linklayer",
            "atm or adsl",
        ),
        (
            r#"kind = "tbf", rat = "1mbit""#,
            "rat",
            "its options are rate, burst",
        ),
    ] {
        let ConfigError { problems, .. } = read(text).expect_err(text);
        let key = Some(format!("qdisc.{key}"));
        let is_it = |problem: &&Problem| problem.key == key && problem.text.contains(part);
        assert!(
            problems.iter().any(|problem| is_it(&problem)),
            "{text}: {problems:?}"
        );
    }
}
