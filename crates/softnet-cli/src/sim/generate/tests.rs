//! Flows and connections in words, and what is told of mistakes.

use super::*;

#[test]
fn connections_in_words() {
    let two = flow("name=web,tcp=2,cc=bbr,rtt=30ms,for=5s,bytes=1m").expect("connections");
    let tcp = two.tcp.expect("connections");
    assert_eq!(
        (two.name.as_str(), tcp.count, tcp.algorithm),
        ("web", 2, Algorithm::Bbr)
    );
    assert_eq!(
        (tcp.rtt, tcp.bytes, tcp.ecn),
        (30_000_000, Some(1 << 20), false)
    );
    let dctcp = flow("tcp=1,cc=dctcp,for=1s").expect("a connection").tcp;
    assert!(dctcp.expect("a connection").ecn);
}

#[test]
fn senders_that_pause_in_words() {
    let ping = flow("ping=20ms,for=1s,rtt=5ms").expect("pings");
    assert_eq!((ping.echo, ping.tcp), (Some(5_000_000), None));
    assert_eq!(
        (ping.flow.pattern, ping.flow.size),
        (Pattern::Every(20_000_000), 98..=98)
    );
    // No rate in whole bytes is as slow.
    let slow = flow("ping=100s,for=1000s,size=60-98").expect("pings");
    assert_eq!(slow.flow.pattern, Pattern::Every(100_000_000_000));
    let web = flow("web=3,for=1s,rwnd=64k").expect("pages").tcp;
    let web = web.expect("connections");
    assert_eq!((web.count, web.pages), (3, true));
    assert_eq!(web.receive_window, Some(65_536));
    let talk = flow("rate=1mbit,for=1s,on=1s,off=1500ms").expect("a flow");
    let (on, off) = (1_000_000_000, 1_500_000_000);
    assert_eq!(talk.flow.pattern, Pattern::OnOff { on, off });
}

#[test]
fn senders_that_the_page_shows() {
    let page = include_str!("../../../../../docs/policy-ci.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<&str> = rows.filter(|line| line.contains(",for=")).collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    for row in rows {
        let example = row.rsplit('`').nth(1).expect(row);
        assert!(flow(example).is_ok(), "{example}");
    }
}

#[test]
fn flows_in_words() {
    let back = flow("rate=8mbit,for=10s,direction=reverse");
    let back = back.expect("a flow").flow;
    assert_eq!(back.direction, Direction::Reverse);
    assert_eq!(
        (back.source.0, back.destination.0),
        (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 1]))
    );
    let plain = flow("rate=8mbit,for=10s").expect("a flow").flow;
    assert_eq!((plain.rate, plain.duration), (1_000_000, 10_000_000_000));
    let all = flow(
        "rate=1mbit,for=1s,size=64-1500,start=5ms,pattern=bursts:8,src=fd00::1,dst=fd00::2,\
         sport=1,dport=53,dscp=46,prio=6,mark=7,seed=9",
    )
    .expect("a flow")
    .flow;
    assert_eq!(
        (all.size, all.start, all.pattern),
        (64..=1500, Time(5_000_000), Pattern::Bursts(8))
    );
    assert_eq!(
        (
            all.destination.1,
            all.dscp,
            all.priority,
            all.mark,
            all.seed
        ),
        (53, 46, 6, 7, 9)
    );
    for (text, part) in [
        ("", "not KEY=VALUE"),
        ("rate=1mbit", "`for` is missing"),
        ("for=1s", "`rate` is missing"),
        ("rate=1mbit,for=1s,rate=2mbit", "given twice"),
        ("rate=1furlong,for=1s", "rate: "),
        ("rate=1mbit,for=1s,size=9000", "frames must have"),
        ("rate=1mbit,for=1s,size=9-8", "frames must have"),
        ("rate=1mbit,for=1s,pattern=bursts:0", "at least one"),
        ("rate=1mbit,for=1s,pattern=jazz", "constant, poisson"),
        ("rate=1mbit,for=1s,src=::1", "both be IPv4 or both"),
        ("rate=8mbit,for=10 ", "for: \"10\" has no unit"),
        ("rate=8mbit,for=0", "for: \"0\" is not longer than nothing"),
        ("rate=nanmbit,for=1s", "not a number"),
        ("rate=1e99gbit,for=1s", "too large"),
        ("ping=0,for=1s", "ping: \"0\" is not longer than nothing"),
        (
            "rate=1mbit,for=1s,pattern=bursts:4194305",
            "at most 4194304 packets",
        ),
        ("name=root,rate=1mbit,for=1s", "is not a name"),
        ("name=1:20,rate=1mbit,for=1s", "is not a name"),
        (
            "tcp=2,for=1s,sport=65535",
            "2 connections have ports up to 65536",
        ),
        ("rate=1mbit,for=1s,colour=red", "known: name, rate, for"),
        ("rate=1mbit,for=1s,cc=reno", "cc is of connections"),
        ("tcp=2,for=1s,rate=1mbit", "rate is not for connections"),
        ("tcp=0,for=1s", "a number from 1 to 10000"),
        ("tcp=1,for=1s,cc=vegas", "reno, cubic, dctcp or bbr"),
        ("tcp=1", "`for` is missing"),
        ("tcp=1,for=1s,ecn=1", "on or off"),
        ("tcp=1,web=2,for=1s", "tcp and web exclude"),
        ("tcp=1,for=1s,ping=1s", "ping is not for connections"),
        ("rate=1mbit,for=1s,on=1s", "on and off belong together"),
        ("rate=1mbit,for=1s,on=0,off=1s", "longer than nothing"),
        ("ping=1s,rate=1mbit,for=1s", "ping and rate exclude"),
        ("rate=1mbit,for=1s,rwnd=64k", "rwnd is of connections"),
        ("tcp=1,rtt=0ms,for=1s", "the shortest is 1us"),
        ("tcp=1,rtt=601s,for=1s", "the longest 600s"),
        ("tcp=1,rtt=9e9s,for=1s", "the longest 600s"),
        ("tcp=1,rwnd=1025m,for=1s", "the largest is 1g"),
        (
            "rate=1mbit,for=1s,direction=back",
            "direction: \"back\" is not forward or reverse",
        ),
    ] {
        let error = flow(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn mistakes_are_told_with_their_column() {
    for (text, start) in [
        ("", "column 1: \"\" is not KEY=VALUE"),
        ("rate=1mbit", "column 12: `for` is missing"),
        ("rate=1mbit,for=1s,rate=2mbit", "column 19: rate is given"),
        ("rate=1furlong,for=1s", "column 1: rate: "),
        ("for=1s,rate=1mbit,size=9-8", "column 19: frames must have"),
        ("rate=1mbit,dscp=64,for=1s", "column 12: a DSCP is"),
        ("rate=1mbit,for=1s,dst=::1", "column 19: source and"),
        ("rate=1mbit,for=1s,colour=red", "column 19: \"colour\" is"),
        ("cc=reno,rate=1mbit,for=1s", "column 1: cc is of"),
        ("tcp=1,direction=up,for=1s", "column 7: direction: "),
        ("tcp=2,for=1s,rate=1mbit", "column 14: rate is not"),
        (
            "name=\u{fc}ber,tcp=1,cc=x,for=1s",
            "column 17: cc: \"x\" is",
        ),
    ] {
        let error = flow(text).expect_err(text);
        assert!(error.starts_with(start), "{text}: {error}");
    }
}
