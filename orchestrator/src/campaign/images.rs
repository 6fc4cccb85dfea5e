//! The guests' user space. Modules are built for one kernel, so each kernel of a
//! campaign has an image of its own; without modules they are one file.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{CampaignError, Library, Prepared};
use crate::{
    agent_binary,
    document::Problems,
    image::{self, Image, ImageFile, ImageSpec, ModuleChoice, ModuleTree},
    kernel::BuiltKernel,
    plan::{Cell, ExperimentSpec},
};

/// A module of one's own: the name experiments use and the folder it is built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnModule {
    /// As written in the experiment.
    pub name: String,
    /// Holds its `Kbuild`.
    pub folder: PathBuf,
}

/// Names of modules that cells load or the image brings along, each once.
fn named<'a>(spec: &'a ExperimentSpec, cells: &'a [Cell]) -> BTreeSet<&'a str> {
    let loaded = cells
        .iter()
        .filter_map(|cell| spec.settings.get(&cell.settings))
        .flat_map(|settings| settings.modules.keys());
    let brought = spec.image.modules.iter().map(|name| &name.value);
    loaded.chain(brought).map(String::as_str).collect()
}

/// Those of the named modules that are built here. Others are the kernel's own,
/// which is known when it is built; but a path must lead to a folder.
pub(super) fn own_modules(
    spec: &ExperimentSpec,
    cells: &[Cell],
    library: &Library,
    problems: &mut Problems,
) -> Vec<OwnModule> {
    let mut own = Vec::new();
    for name in named(spec, cells) {
        match library.module(name) {
            Some(folder) => own.push(OwnModule {
                name: name.to_owned(),
                folder,
            }),
            None if name.contains('/') => {
                let written = spec.image.modules.iter().find(|at| at.value == name);
                problems.at(
                    written.unwrap_or(&spec.name),
                    format!("there is no folder `{name}` with a Kbuild or Makefile"),
                    Some("a module's folder, or the name of one of the kernel's modules".into()),
                );
            }
            None => {}
        }
    }
    own
}

/// A module as the guest's kernel calls it: a folder's own name, when it is one.
fn in_guest(name: &str) -> &str {
    name.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(name)
}

impl Prepared {
    /// Folders of the modules to build for a kernel, in the order of their names.
    pub fn module_folders(&self, kernel: &str) -> Vec<PathBuf> {
        let cells = self.cells_of(kernel);
        let named = named(&self.experiment, &cells);
        let own = self.modules.iter();
        own.filter(|own| named.contains(own.name.as_str()))
            .map(|own| own.folder.clone())
            .collect()
    }

    fn cells_of(&self, kernel: &str) -> Vec<Cell> {
        let cells = self.cells.iter().filter(|cell| cell.kernel == kernel);
        cells.cloned().collect()
    }
}

/// Makes the image for one kernel, which goes by `name` in the cells.
pub(crate) fn build(
    prepared: &Prepared,
    name: &str,
    kernel: &BuiltKernel,
    cache: &Path,
) -> Result<Image, CampaignError> {
    let wanted = &prepared.experiment.image;
    let spec = ImageSpec {
        agent: agent_binary::bytes().to_vec(),
        programs: wanted.binaries.iter().map(PathBuf::from).collect(),
        files: wanted
            .files
            .iter()
            .map(|(path, source)| ImageFile {
                source: source.into(),
                path: path.clone(),
                mode: 0o644,
            })
            .collect(),
        modules: modules(prepared, name, kernel)?,
    };
    image::build(&spec, &cache.join("images")).map_err(CampaignError::Image)
}

/// The kernel's modules that the guest needs: to be reached, and as asked for.
///
/// What the image is to bring must be there. What settings load may be built in,
/// or lacking: the agent finds out, and says that the cell cannot be tested.
fn modules(
    prepared: &Prepared,
    name: &str,
    kernel: &BuiltKernel,
) -> Result<Option<ModuleChoice>, CampaignError> {
    let brought = prepared.experiment.image.modules.iter();
    let brought: Vec<String> = brought.map(|at| in_guest(&at.value).to_owned()).collect();
    let Some(tree) = module_tree(kernel).map_err(CampaignError::Image)? else {
        return if brought.is_empty() {
            Ok(None)
        } else {
            Err(CampaignError::NoModules {
                kernel: name.to_owned(),
                wanted: brought.join(", "),
            })
        };
    };
    let mut choice = ModuleChoice::for_agent(tree, &kernel.release);
    let cells = prepared.cells_of(name);
    let loaded: Vec<String> = named(&prepared.experiment, &cells)
        .into_iter()
        .map(in_guest)
        .filter(|name| choice.tree.knows(name) && !brought.iter().any(|known| known == name))
        .map(String::from)
        .collect();
    choice.on_request = brought;
    choice.on_request.extend(loaded);
    Ok(Some(choice))
}

/// The modules that lie with a kernel; nothing when it has none.
///
/// # Errors
/// When their folder cannot be read.
pub fn module_tree(kernel: &BuiltKernel) -> Result<Option<ModuleTree>, image::ImageError> {
    let Some(root) = &kernel.modules else {
        return Ok(None);
    };
    let folder = root.join("lib/modules").join(&kernel.release);
    Ok(Some(ModuleTree::read(&folder)?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        campaign::{Overrides, PrepareError, prepare},
        kernel::{Tools, Variant},
    };

    /// A library with two kernels, a module of one's own, and an experiment.
    fn lab(image: &str) -> (tempfile::TempDir, Library) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        };
        write("bzImage", "kernel");
        for name in ["k", "other"] {
            let text = format!("name: {name}\nimage: ../bzImage\n");
            write(&format!("kernels/{name}.yaml"), &text);
        }
        write("kernels/modules/mdspin/Kbuild", "obj-m := mdspin.o\n");
        write(
            "topologies/t.yaml",
            "name: t\ncpus: {sockets: 1, cores: 1, threads: 1}\nnodes: [{cpus: 0, memory: 1G}]\n",
        );
        write(
            "experiments/e.yaml",
            &format!(
                "name: e\nkernels: [k, other]\ntopologies: [t]\n\
                 settings:\n  plain: {{}}\n  spins: {{modules: {{mdspin: a=1}}}}\n\
                 \x20 blocks: {{modules: {{brd: '', absent: ''}}}}\n\
                 workloads: {{w: {{command: {{argv: [/bin/true]}}}}}}\n\
                 exclude: [{{kernels: other*, settings: spins}}]\nimage: {image}\n"
            ),
        );
        let library = Library::new(vec![folder.path().into()]);
        (folder, library)
    }

    async fn prepared(library: &Library) -> Result<Prepared, PrepareError> {
        let tools = Tools::in_path(None);
        prepare("e", library, &tools, &Overrides::default(), 1).await
    }

    fn built(modules: Option<PathBuf>) -> BuiltKernel {
        BuiltKernel {
            kernel: "k".into(),
            series: None,
            variant: Variant::Base,
            image: "/bzImage".into(),
            image_sha256: String::new(),
            build_id: None,
            release: "6.12.0".into(),
            config: None,
            config_sha256: None,
            vmlinux: None,
            modules,
            source_id: String::new(),
            compiler: String::new(),
            recompiled: 0,
            seconds: 0.0,
            cached: true,
        }
    }

    /// Modules that lie with a kernel, each needing `base`.
    fn tree(folder: &Path, names: &[&str]) -> BuiltKernel {
        let below = folder.join("lib/modules/6.12.0");
        fs::create_dir_all(below.join("extra")).unwrap();
        let mut list = String::from("extra/base.ko:\n");
        fs::write(below.join("extra/base.ko"), "base").unwrap();
        for name in names {
            fs::write(below.join(format!("extra/{name}.ko")), name).unwrap();
            list.extend(["extra/", name, ".ko: extra/base.ko\n"]);
        }
        fs::write(below.join("modules.dep"), list).unwrap();
        built(Some(folder.into()))
    }

    #[tokio::test]
    async fn what_cells_load_is_built_and_comes_along() {
        let (folder, library) = lab("{}");
        let prepared = prepared(&library).await.unwrap();
        let own = folder.path().join("kernels/modules/mdspin");
        assert_eq!(prepared.module_folders("k@base"), [own]);
        // No cell of this one loads it.
        assert!(prepared.module_folders("other@base").is_empty());
        let place = tempfile::tempdir().unwrap();
        let kernel = tree(place.path(), &["mdspin", "brd", "virtio_console"]);
        let choice = modules(&prepared, "k@base", &kernel).unwrap().unwrap();
        assert_eq!(choice.at_boot, ["virtio_console"]);
        // What the kernel lacks is the agent's to tell.
        assert_eq!(choice.on_request, ["brd", "mdspin"]);
        let image = build(&prepared, "k@base", &kernel, place.path()).unwrap();
        let bytes = fs::read(image.path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for file in ["extra/mdspin.ko", "extra/brd.ko", "extra/base.ko"] {
            let path = format!("lib/modules/6.12.0/{file}");
            assert!(text.contains(&path), "{path}");
        }
        let other = build(&prepared, "other@base", &kernel, place.path()).unwrap();
        assert_ne!(other.sha256, image.sha256);
    }

    #[tokio::test]
    async fn what_the_image_brings_must_be_there() {
        let (_folder, library) = lab("{modules: [brd, mdspin]}");
        let prepared = prepared(&library).await.unwrap();
        assert_eq!(prepared.module_folders("other@base").len(), 1);
        let error = modules(&prepared, "k@base", &built(None)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "k@base has no modules; `image: modules` names brd, mdspin"
        );
        let place = tempfile::tempdir().unwrap();
        let kernel = tree(place.path(), &["mdspin", "brb"]);
        let error = build(&prepared, "k@base", &kernel, place.path()).unwrap_err();
        let told = crate::campaign::chain(&error);
        assert!(told.contains("has no module brd (there is brb)"), "{told}");
    }

    #[tokio::test]
    async fn a_path_must_lead_to_a_module() {
        let (_folder, library) = lab("{modules: [kernels/modules/mdspin, drivers/none]}");
        let error = prepared(&library).await.unwrap_err().to_string();
        assert!(
            error.contains("there is no folder `drivers/none` with a Kbuild or Makefile"),
            "{error}"
        );
        assert!(!error.contains("no folder `kernels"), "{error}");
    }
}
