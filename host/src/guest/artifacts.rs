//! Compiled components on disk, so that a component is compiled once for each release of the host.
//!
//! A file is native code, so it is trusted only as far as this file can tell: the directory belongs
//! to this user alone, the file's name carries the component's digest and the engine's settings,
//! and its content carries its own checksum. Whatever does not fit counts as absent, and the
//! component is compiled and written again. A cache that can't be written costs time, not results:
//! it is reported and never fails a load.

use std::hash::{Hash as _, Hasher};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::guest::error::GuestError;
use crate::types::digest::Digest;

/// What a file begins with; the number is the version of this layout.
const MAGIC: &[u8; 16] = b"tidelock-code-1\n";
const CHECKSUM_BYTES: usize = 32;
const EXTENSION: &str = ".cwasm";

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
    /// Opens the directory and makes it if need be.
    ///
    /// # Errors
    ///
    /// When it can't be made or opened, or belongs to another user.
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
        std::fs::create_dir_all(path).map_err(failed("made"))?;
        let directory =
            Dir::open_ambient_dir(path, ambient_authority()).map_err(failed("opened"))?;
        own_alone(&directory).map_err(refuse)?;
        Ok(ArtifactCache {
            path: path.to_owned(),
            directory,
            engine: engine.clone(),
            engine_key: engine_key(engine),
            bytes_max,
        })
    }

    /// The compiled component, if there is a whole one of this engine's making.
    pub(super) fn get(&self, digest: Digest) -> Option<wasmtime::component::Component> {
        let name = self.file_name(digest);
        let mut file = self.directory.open(&name).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let Some(code) = checked_code(&bytes) else {
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
        let unfinished = format!("{name}.{}.unfinished", std::process::id());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = self.directory.open_with(&unfinished, &options)?;
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(&code).as_bytes())?;
        file.write_all(&code)?;
        drop(file);
        self.directory.rename(&unfinished, &self.directory, &name)?;
        Ok(())
    }

    /// Removes the files written longest ago until another one fits.
    fn make_room(&self, needed_bytes: u64) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in self.directory.entries()? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
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
}

/// The code in a file's bytes, if the file is whole.
fn checked_code(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, code) = rest.split_at_checked(CHECKSUM_BYTES)?;
    let is_whole = blake3::hash(code).as_bytes() == checksum;
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
    // `write` made in a directory that only this user can write to (`own_alone`), and are unchanged
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
    format!("{:016x}", hasher.finish())
}

/// Takes the directory away from everybody else, and makes sure that it is this user's.
#[cfg(unix)]
fn own_alone(directory: &Dir) -> Result<(), String> {
    use cap_std::fs::{MetadataExt as _, Permissions, PermissionsExt as _};

    let describe = |error: std::io::Error| {
        format!("can't be made private: {error}; name a directory that belongs to this user")
    };
    let probe = format!("owner.{}.unfinished", std::process::id());
    let user = directory
        .create(&probe)
        .and_then(|file| file.metadata())
        .map_err(describe)?
        .uid();
    directory.remove_file(&probe).map_err(describe)?;
    let owner = directory.dir_metadata().map_err(describe)?.uid();
    if owner != user {
        return Err(format!(
            "belongs to user {owner}, not to user {user} who runs the host; name a directory of its own"
        ));
    }
    directory
        .set_permissions(".", Permissions::from_mode(0o700))
        .map_err(describe)
}

#[cfg(not(unix))]
fn own_alone(_directory: &Dir) -> Result<(), String> {
    // Elsewhere a user's directories are private by default, and there are no modes to set.
    Ok(())
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

    #[cfg(unix)]
    #[test]
    fn directory_is_made_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache");
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("opened");
        let _cache = open(&path, 1 << 30);
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
