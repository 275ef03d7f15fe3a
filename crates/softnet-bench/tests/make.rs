//! `docs/results/make.sh` with a program that only notes what it is asked for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Plans a minute for the first rounds and two for longer ones, unless these were merged. While
/// there is a file `broken`, two of these are measured and no more.
const BENCH: &str = r#"#!/bin/sh
echo "$*" >>log
longer() { grep -c -- '--longer.*--once' log; }
case $* in
*--longer*--plan*)
    grep -q -- --longer docs/results/one.json && echo "one 0 turns 0.0 minutes" ||
        echo "one 4 turns 2.0 minutes" ;;
*--plan*) echo "one 4 turns 1.0 minutes" ;;
*--longer*--once*) ! [ -e broken ] || [ "$(longer)" -le 2 ] ;;
*) echo "$*" ;;
esac
"#;

struct Tree(PathBuf);

impl Tree {
    fn new() -> Tree {
        let root = std::env::temp_dir().join(format!("make-{}", std::process::id()));
        for name in ["bin", "target/release", "docs/results"] {
            std::fs::create_dir_all(root.join(name)).expect("a folder");
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/make.sh");
        std::fs::copy(script, root.join("docs/results/make.sh")).expect("it is there");
        let git = "#!/bin/sh\n[ \"$1\" = status ] || echo abc\n";
        for (name, text) in [
            ("bin/cargo", "#!/bin/sh\n"),
            ("bin/git", git),
            ("target/release/softnet-bench", BENCH),
        ] {
            let path = root.join(name);
            std::fs::write(&path, text).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("it is ours");
        }
        Tree(root)
    }

    /// Runs the script: true if it succeeds, and its output.
    fn make(&self, arguments: &str) -> (bool, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .arg(self.0.join("docs/results/make.sh"))
            .args(arguments.split(' '))
            .env("PATH", format!("{}:{path}", self.0.join("bin").display()))
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .output()
            .expect("there is a shell");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Processes of first rounds and of longer ones by now.
    fn rounds(&self) -> (usize, usize) {
        let log = self.read("log");
        let once = log.lines().filter(|line| line.contains("--once"));
        let (longer, first): (Vec<_>, Vec<_>) = once.partition(|line| line.contains("--longer"));
        (first.len(), longer.len())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One test, as a program that was just written cannot start while another thread starts one.
#[test]
fn what_is_undecided_is_measured_longer_and_a_stopped_run_goes_on() {
    let tree = Tree::new();
    let (made, said) = tree.make("--minutes 2 one");
    assert!(made && said.contains("2 minutes at most"), "{said}");
    assert!(
        said.contains("longer: left out, more than 2 minutes"),
        "{said}"
    );
    assert_eq!(tree.rounds(), (7, 0));
    assert!(tree.read("docs/results/one.json").starts_with("merge "));

    std::fs::write(tree.0.join("broken"), "").expect("a file");
    let (made, said) = tree.make("one");
    assert!(!made && said.contains("the same command goes on"), "{said}");
    // Of 15, two were measured and 13 failed twice.
    assert_eq!(tree.rounds(), (7, 28));
    assert!(!tree.read("docs/results/one.json").contains("--longer"));
    std::fs::remove_file(tree.0.join("broken")).expect("it is there");
    let (made, said) = tree.make("--minutes 3 one");
    assert!(made, "{said}");
    assert_eq!(tree.rounds(), (7, 41));
    let page = tree.read("docs/results/one.json");
    let parts = page.matches("/one.longer.").count();
    assert!(page.starts_with("merge --longer docs/results/one.json "));
    assert_eq!(parts, 15, "{page}");

    // Nothing is undecided any more, then all is.
    assert!(tree.make("longer one").0);
    assert_eq!(tree.rounds(), (7, 41));
    std::fs::write(tree.0.join("docs/results/one.json"), "").expect("a file");
    assert!(tree.make("longer one").0);
    assert_eq!(tree.rounds(), (7, 56));
}
