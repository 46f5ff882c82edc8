//! The engine with the settings that determinism rests on, the pool of instances, and the loading
//! of components. One for the process.

use std::path::PathBuf;
use std::sync::Arc;

use wasmtime::component::Linker;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig,
    WasmBacktraceDetails,
};

use crate::guest::artifacts::ArtifactCache;
use crate::guest::component::{self, Component};
use crate::guest::deadline::DeadlineThread;
use crate::guest::error::{GuestError, NotAComponent};
use crate::guest::instances::InstanceSlots;
use crate::guest::wasi::{self, GuestState};
use crate::types::digest::Digest;
use crate::types::pipeline::CallLimits;

/// The largest component that is read or loaded, in bytes, where the options do not say.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// The stack that a guest may use, in bytes. The thread that calls it needs about as much again:
/// Rust's threads have 2 MiB.
const STACK_BYTES_MAX: usize = 1 << 20;
/// Frames that a backtrace shows at most.
const BACKTRACE_FRAMES_MAX: usize = 64;
/// Core modules in one component. Components of interpreted languages bring dozens.
const CORE_INSTANCES_MAX: u32 = 100;
/// Linear memories in one component.
const MEMORIES_MAX: u32 = 2;
/// Tables in one component.
const TABLES_MAX: u32 = 16;
/// Elements of one table.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// What the engine keeps about one instance, in bytes.
const INSTANCE_METADATA_BYTES_MAX: usize = 4 << 20;
/// Memory of a slot that is cleared in place between two instances rather than given back to the
/// system, in bytes, where the system tells which pages were touched. Giving pages back costs more
/// than the call: with 1,000 messages a fresh instance takes 80 us in place of 300 us.
const MEMORY_KEPT_BYTES: usize = 8 << 20;
/// The same for the elements of a table, in bytes.
const TABLE_KEPT_BYTES: usize = 100_000;

/// How the runtime is set up.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// Where compiled components are kept; `None` compiles at every start.
    pub cache_directory: Option<PathBuf>,
    /// How large that directory may grow, in bytes.
    pub cache_bytes_max: u64,
    /// How many instances may live at once; further calls wait.
    pub instances_max: u32,
    /// The greatest `limits.memory` that a computation may have, in bytes.
    pub memory_bytes_max: usize,
    /// The largest component that is loaded, in bytes.
    pub component_bytes_max: usize,
    /// Compile for the baseline of the architecture, so that code, stack depth and compiled
    /// components are the same on all its machines. Without it the machine's own instructions are
    /// used, which is for measuring what the baseline costs.
    pub baseline_target: bool,
    /// Count fuel. Without it `limits.fuel` has no effect, which is for measuring what it costs.
    pub fuel: bool,
}

impl Default for GuestOptions {
    fn default() -> GuestOptions {
        GuestOptions {
            cache_directory: None,
            cache_bytes_max: 1 << 30,
            instances_max: 64,
            memory_bytes_max: CallLimits::MEMORY_BYTES_MAX,
            component_bytes_max: COMPONENT_BYTES_MAX,
            baseline_target: true,
            fuel: true,
        }
    }
}

/// Loads components and gives their computations a place to run.
pub struct GuestRuntime {
    engine: Engine,
    linker: Linker<GuestState>,
    cache: Option<ArtifactCache>,
    slots: Arc<InstanceSlots>,
    deadlines: DeadlineThread,
    options: GuestOptions,
}

impl std::fmt::Debug for GuestRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GuestRuntime")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl GuestRuntime {
    /// Starts the engine and its deadline thread.
    ///
    /// # Errors
    ///
    /// [`GuestError::Runtime`] when the options can't be had on this machine,
    /// [`GuestError::CacheDirectory`] when the cache directory can't be used or is not this user's
    /// alone.
    pub fn new(options: GuestOptions) -> Result<Arc<GuestRuntime>, GuestError> {
        let refuse = |error: wasmtime::Error| GuestError::Runtime {
            reason: format!("{error:#}; lower `instances_max` or `memory_bytes_max`"),
        };
        let engine = Engine::new(&engine_settings(&options).map_err(refuse)?).map_err(refuse)?;
        let mut linker = Linker::new(&engine);
        wasi::link(&mut linker).map_err(refuse)?;
        let cache = match &options.cache_directory {
            Some(path) => Some(ArtifactCache::open(path, &engine, options.cache_bytes_max)?),
            None => None,
        };
        let deadlines =
            DeadlineThread::start(engine.clone()).map_err(|error| GuestError::Runtime {
                reason: format!("the system gives no thread for deadlines: {error}"),
            })?;
        Ok(Arc::new(GuestRuntime {
            engine,
            linker,
            cache,
            slots: InstanceSlots::new(options.instances_max as usize),
            deadlines,
            options,
        }))
    }

    /// Loads a component: from the cache when it was compiled before, else compiles it.
    ///
    /// # Errors
    ///
    /// [`GuestError::NotAComponent`] saying what the bytes are instead, or
    /// [`GuestError::ComponentTooLarge`].
    pub fn load(&self, bytes: &[u8]) -> Result<Component, GuestError> {
        if bytes.len() > self.options.component_bytes_max {
            return Err(GuestError::ComponentTooLarge {
                size_bytes: bytes.len(),
                limit_bytes: self.options.component_bytes_max,
            });
        }
        component::recognise(bytes).map_err(GuestError::NotAComponent)?;
        let digest = Digest::of(bytes);
        if let Some(compiled) = self.cache.as_ref().and_then(|cache| cache.get(digest)) {
            return Ok(Component::new(compiled, digest, bytes.len(), true));
        }
        let compiled =
            wasmtime::component::Component::from_binary(&self.engine, bytes).map_err(|error| {
                GuestError::NotAComponent(NotAComponent::Invalid {
                    reason: format!("{error:#}"),
                })
            })?;
        if let Some(cache) = &self.cache {
            cache.put(digest, &compiled);
        }
        Ok(Component::new(compiled, digest, bytes.len(), false))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn linker(&self) -> &Linker<GuestState> {
        &self.linker
    }

    pub(super) fn slots(&self) -> &Arc<InstanceSlots> {
        &self.slots
    }

    pub(super) fn deadlines(&self) -> &DeadlineThread {
        &self.deadlines
    }

    pub(super) fn options(&self) -> &GuestOptions {
        &self.options
    }
}

fn engine_settings(options: &GuestOptions) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    // What determinism rests on.
    config.cranelift_nan_canonicalization(true);
    config.relaxed_simd_deterministic(true);
    config.shared_memory(false);
    if let Some(target) = baseline_target().filter(|_| options.baseline_target) {
        config.target(target)?;
    }
    // What bounds a guest.
    config.consume_fuel(options.fuel);
    config.epoch_interruption(true);
    config.max_wasm_stack(STACK_BYTES_MAX);
    config.async_stack_size(2 * STACK_BYTES_MAX);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options)));
    config.memory_init_cow(true);
    // What makes a failure readable.
    config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config.wasm_backtrace_max_frames(BACKTRACE_FRAMES_MAX.try_into().ok());
    Ok(config)
}

fn pool(options: &GuestOptions) -> PoolingAllocationConfig {
    let instances_max = options.instances_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances_max);
    pool.max_component_instance_size(INSTANCE_METADATA_BYTES_MAX);
    pool.max_core_instances_per_component(CORE_INSTANCES_MAX);
    pool.total_core_instances(instances_max.saturating_mul(CORE_INSTANCES_MAX));
    pool.max_core_instance_size(INSTANCE_METADATA_BYTES_MAX);
    pool.max_memories_per_component(MEMORIES_MAX);
    pool.total_memories(instances_max.saturating_mul(MEMORIES_MAX));
    pool.max_memory_size(options.memory_bytes_max);
    pool.max_tables_per_component(TABLES_MAX);
    pool.total_tables(instances_max.saturating_mul(TABLES_MAX));
    pool.max_tables_per_module(TABLES_MAX);
    pool.table_elements(TABLE_ELEMENTS_MAX);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        // Without the scan the engine would clear all of the kept memory every time.
        pool.pagemap_scan(Enabled::Yes);
        pool.linear_memory_keep_resident(MEMORY_KEPT_BYTES);
        pool.table_keep_resident(TABLE_KEPT_BYTES);
    }
    pool
}

/// The triple of this machine's architecture without any of its extensions; `None` where it is
/// not known, and then the machine's own is used.
fn baseline_target() -> Option<&'static str> {
    match (std::env::consts::ARCH, std::env::consts::OS) {
        ("x86_64", "linux") => Some("x86_64-unknown-linux-gnu"),
        ("aarch64", "linux") => Some("aarch64-unknown-linux-gnu"),
        ("x86_64", "macos") => Some("x86_64-apple-darwin"),
        ("aarch64", "macos") => Some("aarch64-apple-darwin"),
        ("x86_64", "windows") => Some("x86_64-pc-windows-msvc"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Component, GuestError> {
        let runtime = GuestRuntime::new(GuestOptions::default()).expect("the runtime starts");
        runtime.load(&wat::parse_str(text).expect("wat"))
    }

    #[test]
    fn vector_instructions_compile_for_the_baseline() {
        assert!(
            baseline_target().is_some(),
            "this machine's triple is known"
        );
        let text = "(component (core module (func (param v128 v128) (result v128)
            (i8x16.swizzle (local.get 0) (f32x4.ceil (local.get 1)))
            (f64x2.relaxed_madd (local.get 0) (local.get 1) (local.get 0))
            i32x4.mul)))";
        load(text).expect("it compiles");
    }

    #[test]
    fn shared_memory_is_refused() {
        let error = load("(component (core module (memory 1 1 shared)))").expect_err("refused");
        assert!(matches!(
            error,
            GuestError::NotAComponent(NotAComponent::Invalid { .. })
        ));
        assert!(error.to_string().contains("without threads"), "{error}");
    }
}
