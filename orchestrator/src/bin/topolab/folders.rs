//! Where topolab keeps things: `TOPOLAB_CACHE`, `TOPOLAB_RESULTS`, then the XDG
//! folders, then the defaults of the XDG base directory specification.

use std::{env, path::PathBuf};

use crate::failure::Failure;

/// Folders of this user.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Sources, builds, images, remembered probes. May be deleted at any time.
    pub cache: PathBuf,
    /// Parent of the results folders.
    pub results: PathBuf,
    /// Sockets and locks; private to the user, short paths.
    pub runtime: PathBuf,
}

impl Folders {
    /// Looks at the environment.
    ///
    /// # Errors
    /// Neither the variables nor HOME say where the cache should be.
    pub fn from_environment() -> Result<Self, Failure> {
        let var = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let home = var("HOME");
        let cache = var("TOPOLAB_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("topolab")))
            .or_else(|| home.map(|h| h.join(".cache/topolab")))
            .ok_or_else(|| {
                Failure::request(
                    "no folder for the cache: HOME, XDG_CACHE_HOME and TOPOLAB_CACHE are all unset",
                )
                .hint("export TOPOLAB_CACHE=/var/tmp/topolab")
            })?;
        let results = var("TOPOLAB_RESULTS").unwrap_or_else(|| PathBuf::from("results"));
        let runtime = var("XDG_RUNTIME_DIR").filter(|d| d.is_dir()).map_or_else(
            || env::temp_dir().join(format!("topolab-{}", rustix::process::getuid().as_raw())),
            |d| d.join("topolab"),
        );
        Ok(Self {
            cache,
            results,
            runtime,
        })
    }
}
