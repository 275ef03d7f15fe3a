//! The filter, run by hand as the kernel runs it.

use super::filter;

/// The filter's answer to a call.
fn run(number: i64, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&(number as i32).to_ne_bytes());
    #[cfg(target_arch = "x86_64")]
    data.extend_from_slice(&0xc000_003e_u32.to_ne_bytes());
    #[cfg(target_arch = "aarch64")]
    data.extend_from_slice(&0xc000_00b7_u32.to_ne_bytes());
    data.extend_from_slice(&0_u64.to_ne_bytes());
    for argument in arguments {
        data.extend_from_slice(&argument.to_ne_bytes());
    }
    let program = filter::program();
    let (mut at, mut word) = (0, 0_u32);
    loop {
        let step = program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
        match u32::from(step.code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                let place = step.k as usize;
                word = u32::from_ne_bytes(data[place..place + 4].try_into().unwrap());
            }
            code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                at += jump(word == step.k);
            }
            code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                at += jump(word >= step.k);
            }
            code if code == libc::BPF_RET | libc::BPF_K => return step.k,
            code => panic!("{code:#x}"),
        }
    }
}

#[test]
fn calls_that_matter_wait_and_no_others() {
    let netlink = libc::AF_NETLINK as u64;
    let (notify, allow) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
    for (number, arguments, expected) in [
        (libc::SYS_socket, [netlink, 3, 0, 0, 0, 0], notify),
        (libc::SYS_socket, [netlink, 3, 16, 0, 0, 0], allow),
        (libc::SYS_socket, [2, 1, 0, 0, 0, 0], allow),
        (libc::SYS_recvfrom, [3, 1, 1, 0, 0, 0], allow),
        (libc::SYS_recvfrom, [3, 1, 1, 0, 1, 1], notify),
        (libc::SYS_recvfrom, [3, 1, 1, 0, 1 << 32, 1], notify),
        (libc::SYS_recvmsg, [3, 1, 0, 0, 0, 0], notify),
        (libc::SYS_bind, [3, 1, 0, 0, 0, 0], notify),
        (libc::SYS_getsockname, [3, 1, 0, 0, 0, 0], notify),
        (libc::SYS_ioctl, [3, 0x8933, 0, 0, 0, 0], notify),
        (libc::SYS_ioctl, [3, 0x89ff, 0, 0, 0, 0], notify),
        (libc::SYS_ioctl, [3, 0x8a00, 0, 0, 0, 0], allow),
        (libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0], allow),
        (libc::SYS_ioctl, [3, 0x4004_54ca, 0, 0, 0, 0], notify),
        (libc::SYS_sendto, [3, 0, 0, 0, 0, 0], allow),
        (libc::SYS_read, [3, 0, 0, 0, 0, 0], allow),
    ] {
        assert_eq!(run(number, arguments), expected, "{number} {arguments:x?}");
    }
    #[cfg(target_arch = "x86_64")]
    {
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        assert_eq!(
            run(libc::SYS_socket | 0x4000_0000, [netlink, 3, 0, 0, 0, 0]),
            refused
        );
    }
}
