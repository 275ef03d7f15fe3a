//! Replays a corpus: what every input in `fuzz/corpus/TARGET` must pass.

use std::fs;
use std::path::Path;

/// Gives each input of the corpus to `body`. `root` is the repository.
pub(crate) fn replay(root: &Path, target: &str, body: fn(&[u8])) {
    let folder = root.join("fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("the folder can be read").path();
        // Which one it was, should it fail.
        println!("{}", path.display());
        body(&fs::read(&path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 0, "no input in {}", folder.display());
}
