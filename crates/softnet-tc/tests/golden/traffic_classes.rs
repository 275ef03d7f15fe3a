//! Traffic classes of `mqprio`.

use softnet::testing::Bench;

use super::*;

/// Each priority's packets leave through the queues of its traffic class, where several share them
/// by their flow hash, which is another one in the kernel.
#[test]
fn mqprio() {
    let text = read("mqprio");
    let mut recording = Recording::new("mqprio", &text);
    recording.accept("txqueuelen ").expect("the queue's length");
    let Command::AddQdisc(_, _, spec) = command(recording.accept("tc ").expect("one")) else {
        panic!("another command")
    };
    let QdiscSpec::Mqprio(map) = &spec else {
        panic!("another kind")
    };
    let pool = pool(512);
    let qdiscs = spec.instances(4, &pool).expect("four queues");
    let bench = Bench::scripted(config("mqprio"), qdiscs, &pool);
    let mut number = 0;
    while let Some(text) = recording.accept("send ") {
        let packet = packet(&pool, text, number);
        bench.device.transmit(packet.into(), Time::ZERO);
        number += 1;
    }
    recording.accept("out").expect("the order");
    let sent = bench.sent();
    let mut queues = 0;
    for line in recording.lines {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let class: Handle = words[2].parse().expect("a class");
        let packets: usize = words[4].parse().expect("a number");
        // Traffic classes come after all queues.
        let found = match class.minor().checked_sub(0xffe0) {
            Some(class) => {
                let of = &map.classes[usize::from(class)];
                sent[of.offset.into()..][..of.count.into()].iter().sum()
            }
            None if class.minor() <= 2 => sent[usize::from(class.minor()) - 1],
            None => continue,
        };
        queues += 1;
        assert_eq!(found, packets, "{}", line.text);
    }
    assert_eq!(queues, 5);
}
