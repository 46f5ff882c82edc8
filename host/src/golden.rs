//! Golden files: stored bytes as a release wrote them, one small file for each kind and format version. A kind whose
//! encoding changes fails here until it has a new version, with a file of its own; the files of earlier versions stay and must
//! decode for as long as they are supported.
//!
//! `cargo xtask golden` writes the files that are missing. It never changes one: before a release that is done by
//! removing it first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Set by `cargo xtask golden`.
const WRITE: &str = "TIDELOCK_WRITE_GOLDEN";
/// Bytes in a line of a file.
const BYTES_PER_LINE: usize = 48;

/// Decodes a key and its value, and shows what it found, or the whole text of the error.
pub(crate) type Decode<'a> = Box<dyn Fn(&[u8], &[u8]) -> Result<String, String> + 'a>;

/// A kind of stored value, and one of it.
pub(crate) struct Kind<'a> {
    /// The name of its files.
    pub(crate) name: &'a str,
    /// What errors call this one.
    pub(crate) called: &'a str,
    /// The format version that is written now.
    pub(crate) version: u8,
    /// Which byte of the value has it.
    pub(crate) version_at: usize,
    /// Key and value as they are written now; what has no key has an empty one.
    pub(crate) written: (Vec<u8>, Vec<u8>),
    /// What they hold, as `decode` shows it.
    pub(crate) held: String,
    /// As the host decodes it.
    pub(crate) decode: Decode<'a>,
}

/// Holds the files in `folder`, which lies below the host's own, against kinds.
pub(crate) fn check(folder: &str, kinds: &[Kind<'_>]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let is_writing = std::env::var_os(WRITE).is_some();
    if is_writing {
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        kinds.iter().for_each(|kind| write_missing(&folder, kind));
    }
    let mut files = list(&folder);
    for kind in kinds {
        let of_kind = files.remove(kind.name).unwrap_or_default();
        let newest = of_kind.get(&kind.version).unwrap_or_else(|| {
            let (name, version) = (kind.name, kind.version);
            panic!("{name} has no file of version {version}: run `cargo xtask golden`")
        });
        assert_eq!(
            show(&read(newest)),
            show(&kind.written),
            "{} is encoded in another way than {} has it: give it a new format version",
            kind.name,
            newest.display()
        );
        for file in of_kind.values() {
            let (key, value) = read(file);
            let held = (kind.decode)(&key, &value);
            assert_eq!(held.as_ref(), Ok(&kind.held), "{}", file.display());
        }
    }
    assert!(files.is_empty(), "nobody decodes these files: {files:?}");
}

/// Each kind with the next format version is refused: by its name, with both versions, and with what to do.
pub(crate) fn check_newer_is_refused(kinds: &[Kind<'_>]) {
    for kind in kinds {
        let (key, mut value) = kind.written.clone();
        // The upper bits may say more about the value.
        value[kind.version_at] += 1;
        let error = (kind.decode)(&key, &value).expect_err(kind.name);
        let versions = format!(
            "format version {} is newer than {}",
            kind.version + 1,
            kind.version
        );
        for part in [kind.called, &versions, "run the release that wrote it"] {
            assert!(error.contains(part), "{part:?} is missing in: {error}");
        }
    }
}

/// The files by kind and version.
fn list(folder: &Path) -> BTreeMap<String, BTreeMap<u8, PathBuf>> {
    let mut files: BTreeMap<String, BTreeMap<u8, PathBuf>> = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return files;
    };
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let parts = name.and_then(|name| name.rsplit_once(".v"));
        let parts = parts.and_then(|(kind, version)| Some((kind, version.parse().ok()?)));
        let (kind, version) =
            parts.unwrap_or_else(|| panic!("{} is not called KIND.vN.txt", path.display()));
        let of_kind = files.entry(kind.to_owned()).or_default();
        of_kind.insert(version, path);
    }
    files
}

fn write_missing(folder: &Path, kind: &Kind<'_>) {
    let path = folder.join(format!("{}.v{}.txt", kind.name, kind.version));
    if !path.exists() {
        std::fs::write(&path, show(&kind.written)).expect("the file can be written");
    }
}

/// Key and value in hexadecimal.
fn show((key, value): &(Vec<u8>, Vec<u8>)) -> String {
    let mut text = String::new();
    for (name, bytes) in [("key", key), ("value", value)] {
        text.push_str(name);
        for line in bytes.chunks(BYTES_PER_LINE) {
            text.push_str("\n  ");
            for byte in line {
                // Writing to a string can't fail.
                let _ = write!(text, "{byte:02x}");
            }
        }
        text.push('\n');
    }
    text
}

fn read(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let text = std::fs::read_to_string(path).expect("a golden file can be read");
    let (key, value) = (text.strip_prefix("key"))
        .and_then(|text| text.split_once("\nvalue"))
        .unwrap_or_else(|| panic!("{} holds no key and value", path.display()));
    let bytes = |text: &str| {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let pairs = digits.chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits are ASCII");
            u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
        });
        pairs.collect()
    };
    (bytes(key), bytes(value))
}
