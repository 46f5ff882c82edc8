//! Compiled components on disk, so that a component is compiled once for each release of the host.
//!
//! A file is native code, so it is trusted only as far as this file can tell: only this user can
//! write to the directory, the file's name carries the component's digest and the engine's settings,
//! and its content carries a checksum over both and the code. Whatever does not fit counts as
//! absent, and the component is compiled and written again. A cache that can't be written costs
//! time, not results: it is reported and never fails a load.
//!
//! **Invariant:** only files whose names are of the cache's own form are ever removed.

use std::hash::{Hash as _, Hasher};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::guest::error::GuestError;
use crate::types::digest::Digest;

/// What a file begins with; the number is the version of this layout.
const MAGIC: &[u8; 16] = b"tidelock-code-2\n";
const CHECKSUM_BYTES: usize = 32;
const EXTENSION: &str = ".cwasm";
/// What a file's name ends with until the file is whole, behind the number of the process.
const UNFINISHED: &str = ".unfinished";

/// Characters of a digest and of an engine's key in a file's name.
const DIGEST_HEX_LEN: usize = 64;
const ENGINE_KEY_LEN: usize = 16;

/// A directory of compiled components.
#[derive(Debug)]
pub(super) struct ArtifactCache {
    path: PathBuf,
    directory: Dir,
    engine: wasmtime::Engine,
    /// Of the engine's version and settings: part of every file's name.
    engine_key: String,
    bytes_max: u64,
}

impl ArtifactCache {
    /// Opens the directory, or makes it, for this user alone. One that is there is taken as it is
    /// or refused: its mode is not ours to change.
    ///
    /// # Errors
    ///
    /// When it can't be made or opened, is a symbolic link, belongs to another user or can be
    /// written by others.
    pub(super) fn open(
        path: &Path,
        engine: &wasmtime::Engine,
        bytes_max: u64,
    ) -> Result<ArtifactCache, GuestError> {
        let refuse = |finding: String| GuestError::CacheDirectory {
            path: path.to_owned(),
            finding,
        };
        let failed = |action: &'static str| {
            move |error: std::io::Error| {
                refuse(format!(
                    "can't be {action}: {error}; name another directory"
                ))
            }
        };
        let is_made = make_private(path).map_err(failed("made"))?;
        let named = std::fs::symlink_metadata(path).map_err(failed("looked at"))?;
        if named.is_symlink() {
            return Err(refuse(
                "is a symbolic link, which may lead anywhere; remove the link or name the \
                 directory itself"
                    .to_owned(),
            ));
        }
        let directory =
            Dir::open_ambient_dir(path, ambient_authority()).map_err(failed("opened"))?;
        let cache = ArtifactCache {
            path: path.to_owned(),
            directory,
            engine: engine.clone(),
            engine_key: engine_key(engine),
            bytes_max,
        };
        if !is_made {
            cache.check_own(&named).map_err(refuse)?;
        }
        Ok(cache)
    }

    /// Makes sure that the directory is the one that was looked at, this user's, and that nobody
    /// else can write to it.
    #[cfg(unix)]
    fn check_own(&self, named: &std::fs::Metadata) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt as _;

        use cap_std::fs::MetadataExt as _;

        /// The modes that let others write.
        const OTHERS_WRITE: u32 = 0o022;

        let describe = |error: std::io::Error| {
            format!("can't be used: {error}; name a directory that belongs to this user")
        };
        let opened = self.directory.dir_metadata().map_err(describe)?;
        if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            return Err("was replaced while it was opened; try again".to_owned());
        }
        if opened.mode() & OTHERS_WRITE != 0 {
            return Err(format!(
                "can be written by others (mode {:03o}), so the code in it can't be trusted; if it \
                 is yours, take that away (chmod go-w), or name another directory",
                opened.mode() & 0o777
            ));
        }
        // A file of one's own tells who one is.
        let probe = self.unfinished_name(&self.file_name(Digest::of(b"owner")));
        let user = (self.directory.create(&probe))
            .and_then(|file| file.metadata())
            .map_err(describe)?
            .uid();
        match self.directory.remove_file(&probe) {
            // Another thread did the same.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(describe)?,
        }
        match opened.uid() {
            owner if owner == user => Ok(()),
            owner => Err(format!(
                "belongs to user {owner}, not to user {user} who runs the host; name a directory \
                 of its own"
            )),
        }
    }

    #[cfg(not(unix))]
    #[expect(
        clippy::unused_self,
        reason = "elsewhere there are no modes to look at"
    )]
    fn check_own(&self, _named: &std::fs::Metadata) -> Result<(), String> {
        // Elsewhere a user's directories are private by default.
        Ok(())
    }

    /// The compiled component, if there is a whole one of this engine's making.
    pub(super) fn get(&self, digest: Digest) -> Option<wasmtime::component::Component> {
        let name = self.file_name(digest);
        let mut file = self.directory.open(&name).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let Some(code) = checked_code(&bytes, digest, &self.engine_key) else {
            tracing::warn!(file = name, "compiled component damaged, will be replaced");
            return None;
        };
        match deserialize(&self.engine, code) {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(
                    file = name,
                    error = format!("{error:#}"),
                    "compiled component refused, will be replaced"
                );
                None
            }
        }
    }

    /// Keeps a compiled component.
    pub(super) fn put(&self, digest: Digest, component: &wasmtime::component::Component) {
        if let Err(error) = self.write(digest, component) {
            tracing::warn!(
                directory = %self.path.display(),
                error = format!("{error:#}"),
                "compiled component not kept"
            );
        }
    }

    fn write(
        &self,
        digest: Digest,
        component: &wasmtime::component::Component,
    ) -> wasmtime::Result<()> {
        let code = component.serialize()?;
        self.make_room(code.len() as u64)?;
        let name = self.file_name(digest);
        // Two processes may write the same file: each has a name of its own until it is whole.
        let unfinished = self.unfinished_name(&name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = self.directory.open_with(&unfinished, &options)?;
        file.write_all(MAGIC)?;
        file.write_all(checksum(&code, digest, &self.engine_key).as_bytes())?;
        file.write_all(&code)?;
        drop(file);
        self.directory.rename(&unfinished, &self.directory, &name)?;
        Ok(())
    }

    /// Removes the cache's files written longest ago until another one fits. Whatever else lies in
    /// the directory is somebody's own: neither counted nor touched.
    fn make_room(&self, needed_bytes: u64) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in self.directory.entries()? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() && is_own_name(&entry.file_name()) {
                files.push((
                    metadata.modified()?.into_std(),
                    metadata.len(),
                    entry.file_name(),
                ));
            }
        }
        files.sort();
        let mut used_bytes: u64 = files.iter().map(|(_, size_bytes, _)| size_bytes).sum();
        for (_, size_bytes, name) in files {
            if used_bytes.saturating_add(needed_bytes) <= self.bytes_max {
                break;
            }
            self.directory.remove_file(name)?;
            used_bytes -= size_bytes;
        }
        Ok(())
    }

    fn file_name(&self, digest: Digest) -> String {
        format!("{}-{}{EXTENSION}", digest.to_hex(), self.engine_key)
    }

    fn unfinished_name(&self, name: &str) -> String {
        format!("{name}.{}{UNFINISHED}", std::process::id())
    }
}

/// Makes the directory for this user alone; `false` when something of that name is there.
fn make_private(path: &Path) -> std::io::Result<bool> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Whether a name is one that `file_name` or `unfinished_name` makes, of whichever engine.
fn is_own_name(name: &std::ffi::OsStr) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |text: &str, len: usize| {
        let mut bytes = text.bytes();
        text.len() == len && bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (name.to_str())
        .and_then(|name| name.split_once(EXTENSION))
        .and_then(|(stem, rest)| Some((stem.split_once('-')?, rest)))
        .is_some_and(|((digest, engine_key), rest)| {
            let process = rest
                .strip_prefix('.')
                .and_then(|rest| rest.strip_suffix(UNFINISHED));
            is_hex(digest, DIGEST_HEX_LEN)
                && is_hex(engine_key, ENGINE_KEY_LEN)
                && (rest.is_empty() || process.is_some_and(is_number))
        })
}

/// Binds code to its component and its engine.
fn checksum(code: &[u8], digest: Digest, engine_key: &str) -> blake3::Hash {
    // Digest and engine key have a fixed length each, so nothing is ambiguous.
    (blake3::Hasher::new().update(digest.to_hex().as_bytes()))
        .update(engine_key.as_bytes())
        .update(code)
        .finalize()
}

/// The code in a file's bytes, if the file is whole and holds this component for this engine.
fn checked_code<'a>(bytes: &'a [u8], digest: Digest, engine_key: &str) -> Option<&'a [u8]> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (found, code) = rest.split_at_checked(CHECKSUM_BYTES)?;
    let is_whole = checksum(code, digest, engine_key).as_bytes() == found;
    is_whole.then_some(code)
}

#[allow(
    unsafe_code,
    reason = "the engine has no safe way to take native code; see SAFETY"
)]
fn deserialize(
    engine: &wasmtime::Engine,
    code: &[u8],
) -> wasmtime::Result<wasmtime::component::Component> {
    // SAFETY: the bytes must be what `Component::serialize` made. They were read from a file that
    // `write` made in a directory that only this user can write to (`open`), and are unchanged
    // since (`checked_code`). The engine itself refuses other versions and settings. Whoever can
    // still forge such a file can as well replace the host's own executable.
    unsafe { wasmtime::component::Component::deserialize(engine, code) }
}

/// Identifies the engine's version and settings in file names.
fn engine_key(engine: &wasmtime::Engine) -> String {
    struct KeyHasher(blake3::Hasher);

    impl Hasher for KeyHasher {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            let hash = self.0.finalize();
            u64::from_le_bytes(
                hash.as_bytes()[..8]
                    .try_into()
                    .expect("a hash has 32 bytes"),
            )
        }
    }

    let mut hasher = KeyHasher(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:0ENGINE_KEY_LEN$x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> wasmtime::Engine {
        wasmtime::Engine::default()
    }

    fn component(engine: &wasmtime::Engine) -> wasmtime::component::Component {
        let bytes = wat::parse_str("(component)").expect("wat");
        wasmtime::component::Component::from_binary(engine, &bytes).expect("a component")
    }

    fn open(path: &Path, bytes_max: u64) -> ArtifactCache {
        ArtifactCache::open(path, &engine(), bytes_max).expect("the cache opens")
    }

    #[test]
    fn kept_component_comes_back_and_a_damaged_one_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 30);
        let digest = Digest::of(b"x");
        assert!(cache.get(digest).is_none());
        cache.put(digest, &component(&cache.engine));
        assert!(cache.get(digest).is_some());

        let file = directory.path().join(cache.file_name(digest));
        let whole = std::fs::read(&file).expect("the file is there");
        for at in [
            0,
            MAGIC.len(),
            MAGIC.len() + CHECKSUM_BYTES,
            whole.len() - 1,
        ] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, damaged).expect("the file is written");
            assert!(cache.get(digest).is_none(), "byte {at}");
            std::fs::write(&file, &whole[..at]).expect("the file is written");
            assert!(cache.get(digest).is_none(), "cut at {at}");
        }
        std::fs::write(&file, &whole).expect("the file is written");
        assert!(cache.get(digest).is_some());
    }

    #[test]
    fn code_of_another_engine_is_not_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 30);
        cache.put(Digest::of(b"x"), &component(&cache.engine));
        let mut config = wasmtime::Config::new();
        config.consume_fuel(true);
        let other = wasmtime::Engine::new(&config).expect("an engine");
        let other = ArtifactCache::open(directory.path(), &other, 1 << 30).expect("opens");
        assert!(other.get(Digest::of(b"x")).is_none());
    }

    #[test]
    fn cache_stays_below_its_size() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 30);
        let component = component(&cache.engine);
        cache.put(Digest::of(b"old"), &component);
        let size_bytes = component.serialize().expect("serializes").len() as u64;
        let small = open(directory.path(), size_bytes + size_bytes / 2);
        small.put(Digest::of(b"new"), &component);
        assert!(small.get(Digest::of(b"old")).is_none());
        assert!(small.get(Digest::of(b"new")).is_some());
    }

    #[test]
    fn files_of_others_are_neither_counted_nor_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 30);
        let component = component(&cache.engine);
        let size_bytes = component.serialize().expect("serializes").len();
        let own = cache.file_name(Digest::of(b"killed while it wrote"));
        std::fs::write(directory.path().join(format!("{own}.7.unfinished")), "half").expect("made");
        let others = [
            "thesis.docx".to_owned(),
            "module.cwasm".to_owned(),
            own.replace(".cwasm", ".cwasm.bak"),
            own.to_uppercase(),
        ];
        for name in &others {
            let file = std::fs::File::create(directory.path().join(name)).expect("made");
            file.set_len(size_bytes as u64).expect("filled");
        }
        // Room for one: with theirs counted there would be none.
        let small = open(directory.path(), size_bytes as u64 + 200);
        small.put(Digest::of(b"old"), &component);
        small.put(Digest::of(b"new"), &component);
        assert!(small.get(Digest::of(b"old")).is_none(), "room was made");
        assert!(small.get(Digest::of(b"new")).is_some());
        let mut expected = [others.as_slice(), &[small.file_name(Digest::of(b"new"))]].concat();
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .expect("listed")
            .map(|file| {
                file.expect("listed")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        expected.sort();
        left.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn code_under_the_name_of_another_component_is_not_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 30);
        let (this, other) = (Digest::of(b"x"), Digest::of(b"y"));
        cache.put(this, &component(&cache.engine));
        let name = |digest| directory.path().join(cache.file_name(digest));
        std::fs::copy(name(this), name(other)).expect("copied");
        assert!(cache.get(other).is_none());
        assert!(cache.get(this).is_some());
    }

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;

        let metadata = std::fs::metadata(path).expect("there");
        metadata.permissions().mode() & 0o777
    }

    #[cfg(unix)]
    #[test]
    fn new_directory_is_private_and_one_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deep/cache");
        let _cache = open(&path, 1 << 30);
        assert_eq!(mode(&path), 0o700);
        let _again = open(&path, 1 << 30);
        for (bits, is_fine) in [(0o755, true), (0o775, false), (0o777, false)] {
            let permissions = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(&path, permissions).expect("set");
            let opened = ArtifactCache::open(&path, &engine(), 1 << 30);
            assert_eq!(opened.is_ok(), is_fine, "{bits:o}");
            if let Err(error) = opened {
                assert!(error.to_string().contains("chmod go-w"), "{error}");
            }
            assert_eq!(mode(&path), bits, "left as it was");
        }
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_link_is_refused_and_its_target_left_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().expect("a directory");
        let (target, link) = (
            directory.path().join("target"),
            directory.path().join("link"),
        );
        std::fs::create_dir(&target).expect("made");
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).expect("set");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        let error = ArtifactCache::open(&link, &engine(), 1 << 30).expect_err("a link");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(mode(&target), 0o755);
        assert_eq!(std::fs::read_dir(&target).expect("listed").count(), 0);
    }
}
