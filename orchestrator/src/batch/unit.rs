//! What a batch job carries out: a file that names everything a few runs need.
//!
//! The runs of a unit belong together (see [`super::block`]) and are done one
//! after the other on one node. Files are named by their hash, so that a node
//! that does not share the submitter's cache can fill its own.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use topolab_protocol::{
    settings::Settings,
    workload::{Monitors, Workload},
};

use crate::{
    image::Image,
    kernel::BuiltKernel,
    plan::{Accel, BenchSpec, Cell, Limits, PlannedRun},
    run::{Inspect, KernelImage, RunUnit},
    topology::Topology,
};

/// Version of unit files. Another version is refused by name.
pub const UNIT_FORMAT: u32 = 1;

/// A file that must be there, by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Where it lay when the unit was written.
    pub origin: PathBuf,
}

/// A kernel of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitKernel {
    /// The bootable image.
    pub image: Stored,
    /// The user space of its guests, an initramfs.
    pub user_space: Stored,
    /// GNU build id, when it is known.
    pub build_id: Option<String>,
    /// `uname -r`.
    pub release: Option<String>,
    /// Its final configuration, when there is one.
    pub config: Option<Stored>,
}

/// A cell of a unit, with the topology's sets filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitCell {
    /// Its name.
    pub cell: Cell,
    /// Words for the command line.
    pub append: String,
    /// What is written in the guest.
    pub settings: Settings,
    /// What runs.
    pub workload: Workload,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// [`UNIT_FORMAT`] at the time of writing.
    pub format: u32,
    /// Number of the block; names the unit within its campaign.
    pub block: usize,
    /// Blocks of one group hold runs that are compared with each other.
    pub group: usize,
    /// Seed of the campaign.
    pub seed: u64,
    /// SHA-256 of the agent in the image.
    pub agent_sha256: String,
    /// Topology files: name to text.
    pub topologies: BTreeMap<String, String>,
    /// Kernels by their name in cells.
    pub kernels: BTreeMap<String, UnitKernel>,
    /// Cells; runs name them by place.
    pub cells: Vec<UnitCell>,
    /// Runs in the order in which they are done.
    pub runs: Vec<PlannedRun>,
    /// Clocks and tries.
    pub limits: Limits,
    /// What is watched around the workload.
    pub monitors: Monitors,
    /// Complaints of the kernel that are known.
    pub allowed_splats: Vec<String>,
    /// What runs the guests' processors.
    pub accel: Option<Accel>,
    /// How they run, as the experiment says.
    pub bench: BenchSpec,
    /// Runs of one group may be done on nodes that differ.
    pub mix_nodes: bool,
}

/// Why a unit cannot be carried out here.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The file cannot be read.
    #[error("{path}: cannot read the unit")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// The file is no unit.
    #[error("{path}: not a unit of a campaign")]
    Garbled {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        #[source]
        source: serde_json::Error,
    },
    /// A unit of another version.
    #[error("{path}: unit format {found}; this topolab reads format {UNIT_FORMAT}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Version it says it has.
        found: u32,
    },
    /// A topology in it does not stand.
    #[error("{0}")]
    Topology(crate::document::Problems),
    /// A file it names is neither in the cache nor where it lay.
    #[error("{origin}: not there, and the cache {cache} has no file {sha256}")]
    Missing {
        /// Where it lay.
        origin: PathBuf,
        /// The cache.
        cache: PathBuf,
        /// Its hash.
        sha256: String,
    },
    /// A file it names has other content.
    #[error("{path}: SHA-256 {found}, the unit wants {wanted}")]
    Changed {
        /// The file.
        path: PathBuf,
        /// Hash of what is there.
        found: String,
        /// Hash of what was there.
        wanted: String,
    },
    /// The cache cannot be filled.
    #[error("{path}: cannot put the file into the cache")]
    Fill {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
}

impl Stored {
    /// A file of which the hash is known.
    pub fn new(path: &Path, sha256: &str) -> Self {
        Self {
            sha256: sha256.into(),
            origin: path.into(),
        }
    }

    /// The file with this content, from where it lay or from `cache/by-hash`,
    /// which is filled when it does not lie below the cache already. A file gets
    /// its name in the cache by a rename when it is whole, so that two nodes, or
    /// a node that dies, leave a whole one or none, also on NFS.
    ///
    /// # Errors
    /// It is nowhere, has other content, or cannot be copied.
    pub fn fetch(&self, cache: &Path) -> Result<PathBuf, UnitError> {
        if self.origin.starts_with(cache) && self.origin.is_file() {
            self.check(&self.origin)?;
            return Ok(self.origin.clone());
        }
        let folder = cache.join("by-hash");
        let kept = folder.join(&self.sha256);
        if kept.is_file() && self.check(&kept).is_ok() {
            return Ok(kept);
        }
        if !self.origin.is_file() {
            return Err(UnitError::Missing {
                origin: self.origin.clone(),
                cache: cache.into(),
                sha256: self.sha256.clone(),
            });
        }
        self.check(&self.origin)?;
        let fill = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            let mut file = tempfile::Builder::new()
                .prefix(".filling-")
                .tempfile_in(&folder)?;
            io::copy(&mut fs::File::open(&self.origin)?, file.as_file_mut())?;
            file.as_file().sync_all()?;
            file.persist(&kept).map_err(|error| error.error)?;
            Ok(())
        };
        fill().map_err(|source| UnitError::Fill {
            path: kept.clone(),
            source,
        })?;
        self.check(&kept)?;
        Ok(kept)
    }

    fn check(&self, path: &Path) -> Result<(), UnitError> {
        let bytes = fs::read(path).map_err(|source| UnitError::Read {
            path: path.into(),
            source,
        })?;
        let found = format!("{:x}", Sha256::digest(bytes));
        if found == self.sha256 {
            return Ok(());
        }
        Err(UnitError::Changed {
            path: path.into(),
            found,
            wanted: self.sha256.clone(),
        })
    }
}

impl UnitKernel {
    /// A kernel that was built, and the image of its guests.
    pub fn new(built: &BuiltKernel, image: &Image) -> Self {
        let config = built.config.as_deref().zip(built.config_sha256.as_deref());
        Self {
            image: Stored::new(&built.image, &built.image_sha256),
            user_space: Stored::new(&image.path, &image.sha256),
            build_id: built.build_id.clone(),
            release: Some(built.release.clone()),
            config: config.map(|(path, sha256)| Stored::new(path, sha256)),
        }
    }
}

/// The files of a unit, found on this node and checked.
#[derive(Debug, Clone)]
pub struct Fetched {
    kernels: BTreeMap<String, (KernelImage, Image)>,
    topologies: BTreeMap<String, Topology>,
}

impl Unit {
    /// Reads a unit.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn read(path: &Path) -> Result<Self, UnitError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let text = fs::read(path).map_err(|source| UnitError::Read {
            path: path.into(),
            source,
        })?;
        let garbled = |source| UnitError::Garbled {
            path: path.into(),
            source,
        };
        let head: Head = serde_json::from_slice(&text).map_err(garbled)?;
        if head.format != UNIT_FORMAT {
            return Err(UnitError::Version {
                path: path.into(),
                found: head.format,
            });
        }
        serde_json::from_slice(&text).map_err(garbled)
    }

    /// Finds and checks every file and topology it names.
    ///
    /// # Errors
    /// One of them is not what it should be.
    pub fn fetch(&self, cache: &Path) -> Result<Fetched, UnitError> {
        let mut kernels = BTreeMap::new();
        for (name, kernel) in &self.kernels {
            let config = kernel.config.as_ref();
            let image = KernelImage {
                path: kernel.image.fetch(cache)?,
                sha256: kernel.image.sha256.clone(),
                build_id: kernel.build_id.clone(),
                release: kernel.release.clone(),
                config: config.map(|file| file.fetch(cache)).transpose()?,
                config_sha256: config.map(|file| file.sha256.clone()),
            };
            let path = kernel.user_space.fetch(cache)?;
            let user_space = Image {
                bytes: fs::metadata(&path).map_or(0, |about| about.len()),
                path,
                sha256: kernel.user_space.sha256.clone(),
            };
            kernels.insert(name.clone(), (image, user_space));
        }
        let mut topologies = BTreeMap::new();
        for (name, text) in &self.topologies {
            let topology = Topology::from_text(name, text).map_err(UnitError::Topology)?;
            topologies.insert(name.clone(), topology);
        }
        Ok(Fetched {
            kernels,
            topologies,
        })
    }

    /// The cell of a run.
    pub fn cell(&self, run: PlannedRun) -> &UnitCell {
        &self.cells[run.cell]
    }

    /// The topology of a run.
    pub fn topology<'a>(&self, run: PlannedRun, files: &'a Fetched) -> &'a Topology {
        &files.topologies[&self.cell(run).cell.topology]
    }

    /// One of its runs as the engine takes it.
    pub fn run_unit(&self, run: PlannedRun, files: &Fetched) -> RunUnit {
        let cell = self.cell(run);
        let (kernel, user_space) = &files.kernels[&cell.cell.kernel];
        RunUnit {
            name: format!("{}-{}", run.index, self.seed),
            topology: self.topology(run, files).clone(),
            kernel: kernel.clone(),
            image: user_space.clone().into(),
            agent_sha256: self.agent_sha256.clone(),
            append: cell.append.clone(),
            settings: cell.settings.clone(),
            workload: Some(cell.workload.clone()),
            monitors: self.monitors.clone(),
            limits: self.limits.clocks(),
            seed: self.seed.wrapping_add(run.index as u64),
            allowed_splats: self.allowed_splats.clone(),
            inspect: Inspect::default(),
        }
    }
}
