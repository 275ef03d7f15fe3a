//! The socket's file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use softnet_rtnl::server::{Config, Listen, ListenError, Running, Server, group_id};

use crate::client::Socket;
use crate::service::Links;

/// Locked for writing while a process is started. Until it runs its program it has all of this
/// one's sockets, so that one that is closed meanwhile is there for a moment still.
pub(crate) static STARTS: RwLock<()> = RwLock::new(());

/// For a test that relies on it that what it closes is closed.
pub(crate) fn nothing_starts() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that goes with its value.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("softnet-rtnl-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("it is new");
        // Other users come in, too.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Folder(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn config(path: &Path) -> Config {
    let listen = Listen {
        path: path.into(),
        mode: 0o600,
        group: None,
    };
    Config {
        listen,
        monitor: None,
        clients: Config::CLIENTS,
    }
}

pub(crate) fn start(config: &Config, links: Links) -> Running {
    let server = Server::bind(config).expect("it can listen");
    server.start(links).expect("a thread")
}

#[test]
fn the_file_has_its_mode_and_group_and_goes() {
    let folder = Folder::new();
    let path = folder.join("control");
    let root = rustix::process::geteuid().is_root();
    let gid = if root {
        4321
    } else {
        rustix::process::getegid().as_raw()
    };
    let mut config = config(&path);
    config.listen.mode = 0o660;
    config.listen.group = Some(gid);
    config.monitor = Some(Listen {
        path: folder.join("monitor"),
        mode: 0o666,
        group: None,
    });
    let running = start(&config, Links::new(1));
    let file = fs::metadata(&path).expect("it is there");
    assert_eq!((file.mode() & 0o7777, file.gid()), (0o660, gid));
    let file = fs::metadata(folder.join("monitor")).expect("it is there");
    assert_eq!(file.mode() & 0o7777, 0o666);
    running.stop().expect("it ran");
    assert!(
        fs::read_dir(&folder.0)
            .expect("it is ours")
            .next()
            .is_none()
    );
}

#[test]
fn a_dead_servers_socket_is_replaced_a_live_ones_not() {
    let _closed = nothing_starts();
    let folder = Folder::new();
    let path = folder.join("control");
    // A listener that is gone leaves its file.
    drop(UnixListener::bind(&path).expect("it is new"));
    assert!(path.exists());
    let running = start(&config(&path), Links::new(1));
    let error = Server::bind(&config(&path)).expect_err("one lives");
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("control: another server listens there")
    );
    Socket::connect(&path);
    // The file of another server is not removed.
    fs::remove_file(&path).expect("it is ours");
    let other = start(&config(&path), Links::new(1));
    running.stop().expect("it ran");
    Socket::connect(&path);
    drop(other);
    assert!(!path.exists());
    // Sockets of another type, while they live.
    let _other = UnixListener::bind(&path).expect("it is new");
    let error = Server::bind(&config(&path)).expect_err("one lives");
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
}

#[test]
fn file_that_is_no_socket_is_kept() {
    let folder = Folder::new();
    let path = folder.join("file");
    fs::write(&path, "text").expect("it is ours");
    let error = Server::bind(&config(&path)).expect_err("a file");
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "text");
    let link = folder.join("link");
    std::os::unix::fs::symlink(&path, &link).expect("it is new");
    assert!(matches!(
        Server::bind(&config(&link)),
        Err(ListenError::NotASocket(_))
    ));
    let error = Server::bind(&config(&folder.join(&"x".repeat(108)))).expect_err("too long");
    assert!(matches!(error, ListenError::TooLong(_)), "{error}");
    let error = Server::bind(&config(&folder.join("no/control"))).expect_err("no directory");
    assert!(
        error.to_string().ends_with("no/control: cannot bind"),
        "{error}"
    );
}

#[test]
fn groups_have_names_or_numbers() {
    assert_eq!(group_id("root").expect("every system has it"), 0);
    assert_eq!(group_id("4321").expect("a number"), 4321);
    let error = group_id("no such group").expect_err("a space");
    assert_eq!(
        error.to_string(),
        "there is no group \"no such group\" in /etc/group"
    );
}

/// Whoever may read the directory may lock it. That keeps nobody from listening, nor does a lock
/// file that somebody else made.
#[test]
fn a_locked_directory_keeps_no_server_away() {
    let folder = Folder::new();
    let directory = fs::File::open(&folder.0).expect("it is ours");
    directory.lock().expect("nobody else has it");
    let path = folder.join("control");
    let running = start(&config(&path), Links::new(1));
    Socket::connect(&path);
    let names = fs::read_dir(&folder.0).expect("it is ours");
    let names: Vec<_> = names
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    assert_eq!(names, ["control"], "no lock is left");
    drop(running);
    std::os::unix::fs::symlink("/nowhere", folder.join("control.softnet-lock"))
        .expect("it is new");
    let other = folder.join("control.lock");
    fs::write(&other, "").expect("it is new");
    let running = start(&config(&path), Links::new(1));
    Socket::connect(&path);
    drop(running);
    assert!(other.exists(), "it is another program's");
}

/// Servers that start at once on a dead server's socket: one of them listens, where clients find
/// it.
#[test]
fn one_of_concurrent_servers_listens() {
    let _closed = nothing_starts();
    let folder = Folder::new();
    let path = folder.join("control");
    for _ in 0..20 {
        drop(UnixListener::bind(&path).expect("it is new"));
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || Server::bind(&config(&path)).ok();
            let servers: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            servers
                .into_iter()
                .filter_map(|server| server.join().expect("no panic"))
                .collect()
        });
        assert_eq!(bound.len(), 1);
        Socket::connect(&path);
        drop(bound);
        assert!(!path.exists());
    }
}
