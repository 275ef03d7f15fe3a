//! Root in a user namespace. Each case is a process of its own, this program again, as it changes
//! the process for good.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::*;
use softnet_io::{Netns, Tap, TapConfig, UsernsError, become_root_in_userns};

const NOBODY: u32 = 65_534;

fn main() {
    match std::env::var("SOFTNET_TEST_CASE").as_deref() {
        Ok("usable") => usable(),
        Ok("threads") => threads(),
        Ok("no-tun") => no_tun(),
        _ => parent(),
    }
}

fn parent() {
    let root = rustix::process::geteuid().is_root();
    let me = std::env::current_exe().unwrap();
    let case = |name: &str| {
        let mut command = Command::new(&me);
        command.env("SOFTNET_TEST_CASE", name);
        command
    };
    let check = |name: &str, command: &mut Command| {
        let output = command.output().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {stderr}");
        println!("test {name} ... ok");
    };
    check("usable as this user", &mut case("usable"));
    check("refused with threads", &mut case("threads"));
    if !root {
        return skip("only root can become another user to test with");
    }
    // The program may lie where nobody else can read it.
    let copy = std::env::temp_dir().join(format!("softnet-userns-{}", std::process::id()));
    let _remove = Remove(copy.clone());
    std::fs::copy(&me, &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut closed = Command::new(&copy);
    closed
        .env("SOFTNET_TEST_CASE", "no-tun")
        .uid(NOBODY)
        .gid(NOBODY);
    check("a closed control device is named", &mut closed);
    // As on a desktop: the control device open to all, here a second one in a mount namespace of
    // our own.
    let script = "set -e; d=$(mktemp -d); trap 'rmdir $d' EXIT; mount -t tmpfs none $d; \
                  mknod $d/tun c 10 200; chmod 666 $d/tun; mount --bind $d/tun /dev/net/tun; \
                  umount -l $d; rmdir $d; trap - EXIT; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$0\"";
    let mut open = Command::new("unshare");
    open.args(["--mount", "sh", "-c", script])
        .arg(&copy)
        .env("SOFTNET_TEST_CASE", "usable");
    if Command::new("unshare")
        .args(["--mount", "true"])
        .status()
        .is_ok_and(|s| s.success())
    {
        check("usable without privilege", &mut open);
    } else {
        skip("no mount namespace can be made");
    }
}

struct Remove(std::path::PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn usable() {
    match become_root_in_userns() {
        Ok(()) => {}
        Err(
            e @ (UsernsError::Tun { .. } | UsernsError::Refused { .. } | UsernsError::Map { .. }),
        ) => {
            return skip(&e.to_string());
        }
        Err(e) => panic!("{e}"),
    }
    assert!(rustix::process::geteuid().is_root());
    // Devices and further namespaces, as the demo needs them.
    let here = Tap::open(&TapConfig::new("here"), &buffers()).unwrap();
    assert_eq!(here.name, "here");
    let netns = Netns::anonymous().unwrap();
    let there = Tap::open(&config(&netns), &buffers()).unwrap();
    assert!(there.features.checksum);
}

fn threads() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let result = become_root_in_userns();
    drop(end);
    assert!(thread.join().unwrap().is_err());
    match result {
        Err(UsernsError::Threads(2)) => {}
        Err(e @ UsernsError::Tun { .. }) => skip(&e.to_string()),
        other => panic!("{other:?}"),
    }
}

fn no_tun() {
    match become_root_in_userns() {
        Err(e @ UsernsError::Tun { .. }) => {
            let text = e.to_string();
            assert!(text.starts_with("cannot use /dev/net/tun ("), "{text}");
            assert!(text.contains("chmod 0666 /dev/net/tun"), "{text}");
        }
        Ok(()) => println!("the control device is open to all here"),
        Err(e) => panic!("{e}"),
    }
}
