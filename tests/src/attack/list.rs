//! The list of attacks, and what each does in a step.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::stats::DropReason;

use super::{ACCOMPLICE, ATTACKER, Attack, LINK_LOCAL, Load, Seen, Side};
use crate::guest::{Guest, HEADER, INDIRECT, NEXT, Part, TABLE, WRITE, message, of_ring, request};

/// Outside of a guest's memory.
const OUTSIDE: u64 = 1 << 50;

/// Every attack.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "loop",
        seen: Seen::Said("a chain has more descriptors than its table"),
        beside: Load::Spin,
        step: |it| {
            it.broken(|ring| {
                let part = Part::new(ring.next_buffer(), 0, NEXT);
                ring.offer(&vec![part; ring.free().into()]);
            })
        },
    },
    Attack {
        name: "index-runs",
        seen: Seen::Said("the guest broke ring 1"),
        beside: Load::Spin,
        step: |it| it.broken(crate::guest::Ring::run_on),
    },
    Attack {
        name: "outside",
        seen: Seen::Said("outside of guest memory"),
        beside: Load::Spin,
        step: |it| it.broken(|ring| ring.offer(&[Part::new(OUTSIDE, 100, 0)])),
    },
    Attack {
        name: "indirect-in-indirect",
        seen: Seen::Said("an indirect table that is not possible"),
        beside: Load::Spin,
        step: |it| {
            // A packed ring's table has no such flag; there it is the table's place that is wrong.
            let packed = it.config.packed;
            it.broken(|ring| {
                let buffer = ring.next_buffer();
                let table = ring.write_table(&[Part::new(buffer, 64, INDIRECT)]);
                match packed {
                    false => ring.offer(&[table]),
                    true => ring.offer(&[Part::new(buffer, 64, 0), table]),
                }
            })
        },
    },
    Attack {
        name: "runts",
        seen: Seen::Dropped(DropReason::Runt),
        beside: Load::Flood,
        step: |it| it.flood_with(|ring| ring.offer(&[Part::new(ring.next_buffer(), 1, 0)])),
    },
    Attack {
        name: "long-chains",
        seen: Seen::Dropped(DropReason::Runt),
        beside: Load::Flood,
        step: |it| {
            it.flood_with(|ring| {
                let part = Part::new(ring.next_buffer(), 0, 0);
                ring.offer(&vec![part; ring.free().into()]);
            })
        },
    },
    Attack {
        name: "indirect-tables",
        seen: Seen::Dropped(DropReason::LinkLocal),
        beside: Load::Flood,
        step: |it| {
            // The same again and again: it is no work for the attacker.
            it.connect(0)?;
            let ring = it.sides[0].guest.ring(1);
            let mut bytes = [0; TABLE];
            bytes[HEADER..][..6].copy_from_slice(&LINK_LOCAL);
            bytes[HEADER + 6..][..6].copy_from_slice(&ATTACKER);
            let at = ring.write(&bytes);
            let part = |n| Part::new(at + n as u64, 1, 0);
            let table = ring.write_table(&std::array::from_fn::<_, TABLE, _>(part));
            it.flood_with(|ring| ring.offer(&[table]))
        },
    },
    Attack {
        name: "across-regions",
        seen: Seen::Dropped(DropReason::BadSource),
        beside: Load::Flood,
        step: |it| {
            let crossing = it.sides[0].guest.crossing();
            it.flood_with(|ring| ring.offer(&[Part::new(crossing, 200, 0)]))
        },
    },
    Attack {
        name: "kicks",
        seen: Seen::Nothing,
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            (0..64).for_each(|_| it.sides[0].guest.kick(1));
            Ok(())
        },
    },
    Attack {
        name: "broadcasts",
        seen: Seen::Dropped(DropReason::Storm),
        beside: Load::Flood,
        step: |it| it.flood(0, [0xff; 6], ATTACKER),
    },
    Attack {
        name: "no-buffers",
        seen: Seen::Dropped(DropReason::BufferQuota),
        beside: Load::Flood,
        step: |it| {
            it.greet()?;
            it.flood(1, ATTACKER, ACCOMPLICE)
        },
    },
    Attack {
        name: "tiny-buffers",
        seen: Seen::Nothing,
        beside: Load::Flood,
        step: |it| {
            it.greet()?;
            it.sides[0].guest.with(0, |ring| {
                ring.complete();
                ring.fill(u16::MAX, 1);
            });
            it.flood(1, ATTACKER, ACCOMPLICE)
        },
    },
    Attack {
        name: "messages",
        seen: Seen::Nothing,
        beside: Load::Spin,
        step: |it| it.enable_by_turns(1),
    },
    Attack {
        name: "link-flaps",
        seen: Seen::Nothing,
        beside: Load::Spin,
        step: |it| it.enable_by_turns(0),
    },
    Attack {
        name: "unread-answers",
        seen: Seen::Said("the front end takes no answer"),
        beside: Load::Spin,
        step: |it| it.connect(0)?.send(request::GET_FEATURES, &[], &[]),
    },
    Attack {
        name: "memory-tables",
        seen: Seen::Nothing,
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            let Side {
                guest, front_end, ..
            } = &mut it.sides[0];
            let front_end = front_end.as_mut().expect("connected");
            (0..16).try_for_each(|_| guest.set_memory(front_end))
        },
    },
    Attack {
        name: "overlapping-regions",
        seen: Seen::Said("overlap"),
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            let Side {
                guest, front_end, ..
            } = &mut it.sides[0];
            let front_end = front_end.as_mut().expect("connected");
            let files = [guest.file(), guest.file()];
            front_end.send(request::SET_MEM_TABLE, &guest.overlapping(), &files)?;
            it.await_end()
        },
    },
    Attack {
        name: "bad-messages",
        seen: Seen::Said("request 99, which was not offered"),
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?.bytes(&message(99, 1, &[]), &[])?;
            it.await_end()
        },
    },
    Attack {
        name: "reconnects",
        seen: Seen::Said("closed the connection"),
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            it.disconnect(0);
            Ok(())
        },
    },
    Attack {
        name: "blocking-calls",
        seen: Seen::Said("made the call event of ring 1 block"),
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            let guest = &mut it.sides[0].guest;
            guest.block_call(1);
            guest.with(1, |ring| ring.send([0; HEADER], &[0; 60], false));
            let ended = it.await_end();
            it.sides[0].guest = Guest::new(it.config);
            ended
        },
    },
    Attack {
        name: "long-chains-to-receive",
        seen: Seen::Nothing,
        beside: Load::Flood,
        step: |it| {
            it.greet()?;
            it.sides[0].guest.with(0, |ring| {
                ring.complete();
                let part = Part::new(ring.next_buffer(), 0, WRITE);
                let last = Part::new(ring.next_buffer(), 2048, WRITE);
                let mut parts = [part; TABLE];
                parts[TABLE - 1] = last;
                let table = ring.write_table(&parts);
                while ring.free() > 0 {
                    ring.offer(&[table]);
                }
            });
            it.flood(1, ATTACKER, ACCOMPLICE)
        },
    },
    Attack {
        name: "long-frames",
        seen: Seen::Dropped(DropReason::TooLong),
        beside: Load::Flood,
        step: |it| it.flood_with_long(0),
    },
    Attack {
        name: "long-frames-said-to-be-large",
        seen: Seen::Dropped(DropReason::BadGso),
        beside: Load::Flood,
        step: |it| it.flood_with_long(1),
    },
    Attack {
        name: "more-memory-than-allowed",
        seen: Seen::Said("the port's key memory allows"),
        beside: Load::Spin,
        step: |it| {
            const LEN: u64 = 65 << 30;
            let sparse = memory_file(LEN)?;
            let table = region(LEN);
            it.connect(0)?
                .send(request::SET_MEM_TABLE, &table, &[sparse.as_fd()])?;
            it.await_end()
        },
    },
    Attack {
        name: "memory-on-a-disk",
        seen: Seen::Said("some of its memory is left out"),
        beside: Load::Spin,
        step: |it| {
            let disk = std::fs::File::open("/proc/self/exe")?;
            let table = region(0x1000);
            it.connect(0)?
                .request(request::SET_MEM_TABLE, &table, &[disk.as_fd()])
        },
    },
    Attack {
        name: "legacy-driver",
        seen: Seen::Said("does not know virtio 1.0"),
        beside: Load::Spin,
        step: |it| {
            let none = 0_u64.to_ne_bytes();
            it.connect(0)?.request(request::SET_FEATURES, &none, &[])
        },
    },
    Attack {
        name: "disabled-rings",
        seen: Seen::Dropped(DropReason::DeviceDown),
        beside: Load::Flood,
        step: |it| {
            let off = of_ring(1, 0);
            it.connect(0)?
                .request(request::SET_VRING_ENABLE, &off, &[])?;
            it.flood(0, LINK_LOCAL, ATTACKER)
        },
    },
    Attack {
        name: "truncated-memory",
        seen: Seen::Said("took guest memory away"),
        beside: Load::Spin,
        step: |it| {
            it.connect(0)?;
            it.sides[0].guest.truncate(0);
            it.sides[0].guest.kick(1);
            let ended = it.await_end();
            it.sides[0].guest = Guest::new(it.config);
            ended
        },
    },
];

/// A file of so many bytes, none of which takes memory.
fn memory_file(len: u64) -> io::Result<OwnedFd> {
    let file = memfd_create("attack", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len)?;
    Ok(file)
}

/// A memory table of one region of so many bytes.
fn region(len: u64) -> Vec<u8> {
    [1, 0, len, 0, 0].map(u64::to_ne_bytes).concat()
}
