//! WASI as guests get it: what an instance's store holds, and the functions that are linked.
//!
//! Environment and arguments are empty, exit is a trap, stdin is closed, stdout and stderr are
//! caught, there is no terminal and no directory without a grant. Clocks and random numbers answer
//! from here: constant unless granted `host`. Waiting functions are ready at once in every mode.
//! What `policy.rs` never lets through (sockets, HTTP) is not linked at all.
//!
//! **Invariant:** clocks and random numbers are implemented through the traits of wasmtime-wasi's
//! own bindings, so they can't be missed by a version: an override linked under another version
//! than wasmtime-wasi's is silently ignored by the linker.

use std::path::PathBuf;

use wasmtime::component::{HasData, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::WasiClocksView as _;
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi::p2::bindings::{cli, filesystem, sync};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::random::WasiRandomView as _;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView, async_trait};

use crate::guest::capture::Capture;
use crate::types::pipeline::{CallLimits, ClockGrant, DirectoryGrant, Grants, RandomGrant};

/// The moment at which a frozen clock stands: 2020-01-01T00:00:00Z, in seconds since the epoch.
const FROZEN_WALL_SECONDS: u64 = 1_577_836_800;
/// What a frozen monotonic clock shows, in nanoseconds. Not 0, which Go's runtime takes for a
/// broken clock.
const FROZEN_MONOTONIC_NS: u64 = 1_000_000_000;
/// The resolution of a frozen clock, in nanoseconds.
const FROZEN_RESOLUTION_NS: u32 = 1_000;
/// The seed of the numbers under `random = "seeded"`.
const RANDOM_SEED: &[u8] = b"tidelock seeded random numbers, version 1";
/// How many random bytes a guest may draw at once.
const RANDOM_BYTES_MAX: u64 = 1 << 20;
/// How many resources (open streams, pollables, files) an instance may hold.
const RESOURCES_MAX: usize = 10_000;

/// What the store of one instance holds.
pub(super) struct GuestState {
    table: ResourceTable,
    wasi: WasiCtx,
    outside: Outside,
    random: Option<blake3::OutputReader>,
    memory_limit: MemoryLimit,
    stdout: Capture,
    stderr: Capture,
}

/// What an instance sees of the outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Outside {
    host_random: bool,
    host_clock: bool,
    directories: Vec<DirectoryGrant>,
}

impl Outside {
    /// Nothing: clocks stand still and random numbers are always the same. Whether a component may
    /// have even those, the policy decides.
    pub(super) fn sealed() -> Outside {
        Outside::default()
    }

    /// What is granted.
    pub(super) fn granted(grants: &Grants) -> Outside {
        Outside {
            host_random: grants.random == RandomGrant::Host,
            host_clock: grants.clock == ClockGrant::Host,
            directories: grants.directories.clone(),
        }
    }
}

impl GuestState {
    /// For a fresh instance.
    ///
    /// # Errors
    ///
    /// The directory that can't be opened, and why.
    pub(super) fn new(
        outside: &Outside,
        limits: &CallLimits,
    ) -> Result<GuestState, (PathBuf, std::io::Error)> {
        let stdout = Capture::new(limits.log_bytes);
        let stderr = Capture::new(limits.log_bytes);
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stdout.clone()).stderr(stderr.clone());
        wasi.allow_blocking_current_thread(true);
        for DirectoryGrant { guest_path, path } in &outside.directories {
            wasi.preopened_dir(path, guest_path, FsPerms::ReadOnly)
                .map_err(|error| (path.clone(), std::io::Error::other(error)))?;
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        Ok(GuestState {
            table,
            wasi: wasi.build(),
            outside: outside.clone(),
            random: None,
            memory_limit: MemoryLimit::new(limits.memory_bytes),
            stdout,
            stderr,
        })
    }

    /// Makes the state ready for another call: the same random numbers again.
    pub(super) fn begin_call(&mut self) {
        self.random = None;
        self.memory_limit.denied_bytes = None;
    }

    /// What the guest printed since the last call: stdout and stderr.
    pub(super) fn take_prints(&self) -> (String, String) {
        (self.stdout.take(), self.stderr.take())
    }

    /// The size of memory that was refused in this call, in bytes.
    pub(super) fn denied_bytes(&self) -> Option<usize> {
        self.memory_limit.denied_bytes
    }

    pub(super) fn memory_limit(&mut self) -> &mut dyn wasmtime::ResourceLimiter {
        &mut self.memory_limit
    }

    fn seeded_bytes(&mut self, count: usize) -> Vec<u8> {
        let random = self
            .random
            .get_or_insert_with(|| blake3::Hasher::new().update(RANDOM_SEED).finalize_xof());
        let mut bytes = vec![0; count];
        random.fill(&mut bytes);
        bytes
    }

    fn seeded_u64(&mut self) -> u64 {
        let bytes = self.seeded_bytes(8);
        u64::from_le_bytes(bytes.try_into().expect("eight bytes were drawn"))
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// Bounds linear memory. A growth that is refused ends the call at once, so no guest can take
/// another way on one machine than on the next.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit_bytes: usize,
    used_bytes: usize,
    denied_bytes: Option<usize>,
}

impl MemoryLimit {
    fn new(limit_bytes: usize) -> MemoryLimit {
        MemoryLimit {
            limit_bytes,
            used_bytes: 0,
            denied_bytes: None,
        }
    }
}

impl wasmtime::ResourceLimiter for MemoryLimit {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // A component may have several memories; the limit is on all of them together.
        let used_bytes = self
            .used_bytes
            .saturating_sub(current)
            .saturating_add(desired);
        if used_bytes > self.limit_bytes {
            self.denied_bytes = Some(used_bytes);
            return Err(wasmtime::format_err!("the memory limit is reached"));
        }
        self.used_bytes = used_bytes;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.denied_bytes = Some(self.used_bytes);
        Err(error)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The pool's table size bounds them.
        Ok(true)
    }
}

/// Links everything that a component may import.
///
/// # Errors
///
/// When the engine refuses a name, which would be a defect of this file.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    sync::io::error::add_to_linker::<GuestState, Table>(linker, |state| &mut state.table)?;
    sync::io::poll::add_to_linker::<GuestState, Table>(linker, |state| &mut state.table)?;
    sync::io::streams::add_to_linker::<GuestState, Table>(linker, |state| &mut state.table)?;

    cli::environment::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::exit::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::stdin::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::stdout::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::stderr::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_input::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_output::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stdin::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stdout::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stderr::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;

    filesystem::preopens::add_to_linker::<GuestState, WasiFilesystem>(
        linker,
        GuestState::filesystem,
    )?;
    sync::filesystem::types::add_to_linker::<GuestState, WasiFilesystem>(
        linker,
        GuestState::filesystem,
    )?;

    type Own = HasSelf<GuestState>;
    wall_clock::add_to_linker::<GuestState, Own>(linker, |state| state)?;
    monotonic_clock::add_to_linker::<GuestState, Own>(linker, |state| state)?;
    random::add_to_linker::<GuestState, Own>(linker, |state| state)?;
    insecure::add_to_linker::<GuestState, Own>(linker, |state| state)?;
    insecure_seed::add_to_linker::<GuestState, Own>(linker, |state| state)
}

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

impl wall_clock::Host for GuestState {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        match self.outside.host_clock {
            true => wall_clock::Host::now(&mut self.clocks()),
            false => Ok(wall_clock::Datetime {
                seconds: FROZEN_WALL_SECONDS,
                nanoseconds: 0,
            }),
        }
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        match self.outside.host_clock {
            true => wall_clock::Host::resolution(&mut self.clocks()),
            false => Ok(wall_clock::Datetime {
                seconds: 0,
                nanoseconds: FROZEN_RESOLUTION_NS,
            }),
        }
    }
}

impl monotonic_clock::Host for GuestState {
    fn now(&mut self) -> wasmtime::Result<monotonic_clock::Instant> {
        match self.outside.host_clock {
            true => monotonic_clock::Host::now(&mut self.clocks()),
            false => Ok(FROZEN_MONOTONIC_NS),
        }
    }

    fn resolution(&mut self) -> wasmtime::Result<monotonic_clock::Duration> {
        match self.outside.host_clock {
            true => monotonic_clock::Host::resolution(&mut self.clocks()),
            false => Ok(u64::from(FROZEN_RESOLUTION_NS)),
        }
    }

    fn subscribe_instant(
        &mut self,
        _when: monotonic_clock::Instant,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        always_ready(&mut self.table)
    }

    fn subscribe_duration(
        &mut self,
        _duration: monotonic_clock::Duration,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        always_ready(&mut self.table)
    }
}

/// A wait that is over before it begins: no guest keeps a thread without using fuel.
struct NoWait;

#[async_trait]
impl Pollable for NoWait {
    async fn ready(&mut self) {}
}

fn always_ready(table: &mut ResourceTable) -> wasmtime::Result<Resource<DynPollable>> {
    let wait = table.push(NoWait)?;
    subscribe(table, wait)
}

impl random::Host for GuestState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        let count = random_count(len)?;
        match self.outside.host_random {
            true => random::Host::get_random_bytes(self.random(), len),
            false => Ok(self.seeded_bytes(count)),
        }
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        match self.outside.host_random {
            true => random::Host::get_random_u64(self.random()),
            false => Ok(self.seeded_u64()),
        }
    }
}

impl insecure::Host for GuestState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        let count = random_count(len)?;
        match self.outside.host_random {
            true => insecure::Host::get_insecure_random_bytes(self.random(), len),
            false => Ok(self.seeded_bytes(count)),
        }
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        match self.outside.host_random {
            true => insecure::Host::get_insecure_random_u64(self.random()),
            false => Ok(self.seeded_u64()),
        }
    }
}

impl insecure_seed::Host for GuestState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        match self.outside.host_random {
            true => insecure_seed::Host::insecure_seed(self.random()),
            false => Ok((self.seeded_u64(), self.seeded_u64())),
        }
    }
}

fn random_count(len: u64) -> wasmtime::Result<usize> {
    match usize::try_from(len) {
        Ok(count) if len <= RANDOM_BYTES_MAX => Ok(count),
        _ => Err(wasmtime::format_err!(
            "{len} random bytes were drawn at once, allowed are {RANDOM_BYTES_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> GuestState {
        GuestState::new(&Outside::sealed(), &CallLimits::default()).expect("nothing to open")
    }

    #[test]
    fn seeded_numbers_are_the_same_in_every_call() {
        let mut state = state();
        let first = random::Host::get_random_bytes(&mut state, 16).expect("bytes");
        let second = random::Host::get_random_bytes(&mut state, 16).expect("bytes");
        assert_ne!(first, second);
        state.begin_call();
        assert_eq!(
            random::Host::get_random_bytes(&mut state, 16).expect("bytes"),
            first
        );
        assert!(random::Host::get_random_bytes(&mut state, u64::MAX).is_err());
    }

    #[test]
    fn frozen_clocks_stand_still() {
        let mut state = state();
        let first = monotonic_clock::Host::now(&mut state).expect("an instant");
        assert_eq!(
            monotonic_clock::Host::now(&mut state).expect("an instant"),
            first
        );
        let wall = wall_clock::Host::now(&mut state).expect("a time");
        assert_eq!(wall.seconds, FROZEN_WALL_SECONDS);
    }

    #[test]
    fn memory_is_bounded_over_all_memories_of_an_instance() {
        use wasmtime::ResourceLimiter as _;

        let mut limit = MemoryLimit::new(100);
        assert!(limit.memory_growing(0, 60, None).expect("fits"));
        assert!(limit.memory_growing(0, 30, None).expect("fits"));
        assert!(limit.memory_growing(60, 70, None).expect("fits"));
        assert!(limit.memory_growing(30, 31, None).is_err());
        assert_eq!(limit.denied_bytes, Some(101));
    }
}
