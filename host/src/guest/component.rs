//! A loaded component: compiled, named by its digest, its imports and exports listed.
//!
//! Also tells what bytes are that are not a component, before the compiler sees them.

use std::fmt;
use std::sync::Arc;

use wasmtime::component::types::ComponentItem;

use crate::guest::error::NotAComponent;
use crate::types::digest::Digest;

/// A component, compiled. Clones share everything.
#[derive(Clone)]
pub struct Component {
    loaded: Arc<Loaded>,
}

struct Loaded {
    compiled: wasmtime::component::Component,
    digest: Digest,
    size_bytes: usize,
    is_from_cache: bool,
    imports: Vec<ImportedFunction>,
    exports: Vec<String>,
}

/// A function that a component imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedFunction {
    /// Package and interface: `wasi:clocks/wall-clock`. Empty for a function of the world itself.
    pub interface: String,
    /// The interface's version: `0.2.6`.
    pub version: Option<String>,
    /// The function, or whatever else an interface holds that the host does not know.
    pub function: String,
}

impl fmt::Display for ImportedFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interface.as_str() {
            "" => formatter.write_str(&self.function)?,
            interface => write!(formatter, "{interface}.{}", self.function)?,
        }
        match &self.version {
            Some(version) => write!(formatter, "@{version}"),
            None => Ok(()),
        }
    }
}

impl Component {
    pub(super) fn new(
        compiled: wasmtime::component::Component,
        digest: Digest,
        size_bytes: usize,
        is_from_cache: bool,
    ) -> Component {
        let imports = list_imports(&compiled);
        let exports = list_exports(&compiled);
        Component {
            loaded: Arc::new(Loaded {
                compiled,
                digest,
                size_bytes,
                is_from_cache,
                imports,
                exports,
            }),
        }
    }

    /// Its name: the digest of its bytes.
    pub fn digest(&self) -> Digest {
        self.loaded.digest
    }

    /// The size of its bytes.
    pub fn size_bytes(&self) -> usize {
        self.loaded.size_bytes
    }

    /// Whether the compiled form came from the cache, so that nothing was compiled.
    pub fn is_from_cache(&self) -> bool {
        self.loaded.is_from_cache
    }

    /// Every function that it imports, in its own order.
    pub fn imports(&self) -> &[ImportedFunction] {
        &self.loaded.imports
    }

    /// Every function that it exports, with interface and version:
    /// `tidelock:computation/computation@0.1.0.process`.
    pub fn exports(&self) -> &[String] {
        &self.loaded.exports
    }

    pub(super) fn compiled(&self) -> &wasmtime::component::Component {
        &self.loaded.compiled
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Component")
            .field("digest", &self.loaded.digest)
            .field("size_bytes", &self.loaded.size_bytes)
            .finish_non_exhaustive()
    }
}

/// The packages whose resources the host has.
const LINKED: [&str; 5] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:io/",
    "wasi:random/",
];

fn list_imports(compiled: &wasmtime::component::Component) -> Vec<ImportedFunction> {
    let engine = compiled.engine();
    let mut imports = Vec::new();
    for (name, item) in compiled.component_type().imports(engine) {
        let (interface, version) = split_version(name);
        let function = |function: &str| ImportedFunction {
            interface: interface.to_owned(),
            version: version.map(str::to_owned),
            function: function.to_owned(),
        };
        match item.ty {
            ComponentItem::ComponentInstance(instance) => {
                let is_linked = LINKED.iter().any(|package| interface.starts_with(package));
                for (name, item) in instance.exports(engine) {
                    match item.ty {
                        ComponentItem::Type(_) => {}
                        // They come with the functions of an interface that the host links.
                        // Elsewhere they are imports of their own that it can't satisfy.
                        ComponentItem::Resource(_) if is_linked => {}
                        _ => imports.push(function(name)),
                    }
                }
            }
            _ => imports.push(ImportedFunction {
                interface: String::new(),
                version: version.map(str::to_owned),
                function: interface.to_owned(),
            }),
        }
    }
    imports
}

fn list_exports(compiled: &wasmtime::component::Component) -> Vec<String> {
    let engine = compiled.engine();
    let mut exports = Vec::new();
    for (name, item) in compiled.component_type().exports(engine) {
        match item.ty {
            ComponentItem::ComponentInstance(instance) => {
                for (function, item) in instance.exports(engine) {
                    if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                        exports.push(format!("{name}.{function}"));
                    }
                }
            }
            _ => exports.push(name.to_owned()),
        }
    }
    exports
}

fn split_version(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((interface, version)) => (interface, Some(version)),
        None => (name, None),
    }
}

const MAGIC: &[u8] = b"\0asm";
const CORE_MODULE_VERSION: u32 = 1;
const COMPONENT_VERSION: u32 = 0x0001_000d;
const HEADER_BYTES: usize = 8;

/// Checks that the bytes are a component with whole sections; what is inside of them is the
/// compiler's business.
///
/// # Errors
///
/// What they are instead.
pub(super) fn recognise(bytes: &[u8]) -> Result<(), NotAComponent> {
    if bytes.is_empty() {
        return Err(NotAComponent::Empty);
    }
    if !bytes.starts_with(MAGIC) {
        let begin = bytes.trim_ascii_start();
        return Err(match begin.starts_with(b"(") || begin.starts_with(b";;") {
            true => NotAComponent::Text,
            false if MAGIC.starts_with(bytes) => truncated(HEADER_BYTES as u64, bytes),
            false => NotAComponent::NotWebAssembly,
        });
    }
    let Some(version) = bytes.get(MAGIC.len()..HEADER_BYTES) else {
        return Err(truncated(HEADER_BYTES as u64, bytes));
    };
    let version = u32::from_le_bytes(version.try_into().expect("the slice has four bytes"));
    match version {
        COMPONENT_VERSION => check_sections(bytes),
        CORE_MODULE_VERSION => Err(NotAComponent::CoreModule),
        version => Err(NotAComponent::UnknownVersion { version }),
    }
}

/// Follows the sections: an id, a length in LEB128, that many bytes.
fn check_sections(bytes: &[u8]) -> Result<(), NotAComponent> {
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        let mut length = 0_u64;
        let mut at = offset + 1;
        for shift in (0..35).step_by(7) {
            let byte = *bytes
                .get(at)
                .ok_or_else(|| truncated(at as u64 + 1, bytes))?;
            at += 1;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let end = at as u64 + length;
        if end > bytes.len() as u64 {
            return Err(truncated(end, bytes));
        }
        offset = end as usize;
    }
    Ok(())
}

fn truncated(needed_bytes: u64, bytes: &[u8]) -> NotAComponent {
    NotAComponent::Truncated {
        needed_bytes,
        found_bytes: bytes.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Option<&NotAComponent>) {
        assert_eq!(recognise(bytes).err().as_ref(), expected, "{bytes:?}");
    }

    #[test]
    fn every_kind_of_wrong_bytes_is_told_apart() {
        check(b"", Some(&NotAComponent::Empty));
        check(b"#!/bin/sh\n", Some(&NotAComponent::NotWebAssembly));
        check(b"\x7fELF", Some(&NotAComponent::NotWebAssembly));
        check(b"  (component)", Some(&NotAComponent::Text));
        check(b"\0asm\x01\0\0\0", Some(&NotAComponent::CoreModule));
        let unknown = NotAComponent::UnknownVersion { version: 0x2_000d };
        check(b"\0asm\x0d\0\x02\0", Some(&unknown));
        check(b"\0asm\x0d\0\x01\0", None);
    }

    #[test]
    fn a_component_cut_anywhere_inside_a_section_is_truncated() {
        let whole = wat::parse_str("(component (core module (func)) (core module))").expect("wat");
        check(&whole, None);
        let mut truncated_count = 0;
        for len in 1..whole.len() {
            match recognise(&whole[..len]) {
                Ok(()) => {}
                Err(NotAComponent::Truncated {
                    needed_bytes,
                    found_bytes,
                }) => {
                    assert!(found_bytes < needed_bytes);
                    truncated_count += 1;
                }
                Err(other) => panic!("{len} bytes: {other:?}"),
            }
        }
        assert!(truncated_count > whole.len() / 2);
    }

    #[test]
    fn lengths_that_never_end_do_not_overflow() {
        let mut bytes = b"\0asm\x0d\0\x01\0\x01".to_vec();
        bytes.extend([0xff; 16]);
        assert!(matches!(
            recognise(&bytes),
            Err(NotAComponent::Truncated { .. })
        ));
    }

    #[test]
    fn names_put_the_version_last() {
        let import = ImportedFunction {
            interface: "wasi:clocks/wall-clock".to_owned(),
            version: Some("0.2.6".to_owned()),
            function: "now".to_owned(),
        };
        assert_eq!(import.to_string(), "wasi:clocks/wall-clock.now@0.2.6");
    }
}
