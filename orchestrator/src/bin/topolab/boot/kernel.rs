//! The kernel of a guest that is booted, and its modules.

use std::path::{Path, PathBuf};

use topolab::{
    campaign::module_tree,
    image::ModuleChoice,
    kernel::{self, Kernel, KernelRequest},
    run::KernelImage,
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    kernel::failure as kernel_failure,
    lab,
    terminal::Terminal,
};

/// A module to be loaded in the guest.
pub struct Wanted {
    /// As the guest calls it.
    pub name: String,
    /// As in `name=parameters`.
    pub parameters: String,
    /// Where it is built, unless the kernel has it.
    folder: Option<PathBuf>,
}

impl Wanted {
    /// From `NAME`, `NAME=PARAMETERS`, or a folder in place of the name.
    pub fn of(text: &str) -> Self {
        let (name, parameters) = text.split_once('=').unwrap_or((text, ""));
        let name = name.trim_end_matches('/');
        let last = name.rsplit('/').next().unwrap_or(name);
        Self {
            name: last.into(),
            parameters: parameters.into(),
            folder: lab::library().module(name),
        }
    }
}

/// The kernel that was asked for, its modules that make the agent reachable or are
/// asked for, and its symbols.
pub async fn kernel_image(
    asked: &str,
    wanted: &[Wanted],
    folders: &Folders,
    terminal: Terminal,
) -> Result<(KernelImage, Option<ModuleChoice>, Option<PathBuf>), Failure> {
    let path = Path::new(asked);
    if path.is_file() && path.extension().is_none_or(|ending| ending != "yaml") {
        if !wanted.is_empty() {
            return Err(Failure::request(
                "an image alone brings no modules; a kernel's file says where they come from",
            )
            .hint("topolab kernel list"));
        }
        let image = KernelImage::of_file(path);
        let image = image.map_err(|error| Failure::of(Kind::Request, &error))?;
        return Ok((image, None, None));
    }
    let request: KernelRequest = asked.parse().map_err(Failure::request)?;
    let file = lab::library()
        .kernel(&request.kernel)
        .map_err(Failure::request)?;
    let kernel = Kernel::read(&file)?;
    let points = kernel::expand(&kernel, &request, &lab::tools()).await;
    let points = points.map_err(|error| kernel_failure(&error))?;
    let [point] = &points[..] else {
        let all: Vec<String> = points.iter().map(ToString::to_string).collect();
        return Err(Failure::request(format_args!(
            "`{asked}` stands for several kernels: {}",
            all.join(", ")
        )));
    };
    let builder = lab::builder(folders);
    let progress = crate::kernel::Progress::new(terminal);
    let listen = |event| progress.on(&event);
    let series = point.series.as_deref();
    let own: Vec<PathBuf> = wanted.iter().filter_map(|one| one.folder.clone()).collect();
    let building = async {
        let built = kernel::build(&builder, &kernel, series, &point.variant, &listen).await?;
        kernel::with_modules(&builder, &kernel, &built, &own, &listen).await
    };
    let built = building.await.map_err(|error| kernel_failure(&error))?;
    let request = |error| Failure::of(Kind::Request, &error);
    let modules = match module_tree(&built).map_err(request)? {
        Some(tree) => {
            let mut choice = ModuleChoice::for_agent(tree, &built.release);
            choice.on_request = wanted.iter().map(|one| one.name.clone()).collect();
            Some(choice)
        }
        // What is built in needs no file; the agent tells what is not there.
        None => None,
    };
    Ok((KernelImage::from(&built), modules, built.vmlinux.clone()))
}
