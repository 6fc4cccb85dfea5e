//! `topolab image list`.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use comfy_table::Table;
use topolab::image::{
    UserSpace,
    disk::{self, Base, Debian, Recipe},
    ready::DISK_FOLDER,
};

use crate::{failure::Failure, folders::Folders, lab, terminal::Terminal};

/// Arguments of `topolab image list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Lists the library's images.
pub fn run(args: &ListArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let library = lab::library();
    let mut table = Table::new();
    table.set_header(["image", "kind", "holds", "built"]);
    let mut rows = Vec::new();
    for name in library.names("images") {
        let file = library.image(&name).map_err(Failure::request)?;
        let recipe = Recipe::read(&file)?;
        let kind = recipe.base.kind();
        let built = built(&recipe.base, &folders.cache);
        let holds = holds(&recipe.base);
        table.add_row([
            name.clone(),
            kind.to_string(),
            holds.clone(),
            match &built {
                Some((_, bytes)) => format!("{} MiB", bytes >> 20),
                None if matches!(recipe.base, Base::Debian(_)) => "no".into(),
                None => "when it is used".into(),
            },
        ]);
        rows.push(serde_json::json!({
            "name": name,
            "kind": kind,
            "file": file,
            "holds": holds,
            "path": built.as_ref().map(|(path, _)| path),
            "bytes": built.as_ref().map(|(_, bytes)| bytes),
        }));
    }
    if args.json {
        terminal.json(&rows);
    } else {
        terminal.table(table);
    }
    Ok(ExitCode::SUCCESS)
}

fn holds(base: &Base) -> String {
    match base {
        Base::Initramfs(_) => "the agent, and what an experiment names".into(),
        Base::Debian(debian) => {
            let more = debian.packages.join(" ");
            format!("Debian {}: {more}", debian.suite)
        }
        Base::Host => "this machine's root, read only".into(),
        Base::Existing(existing) => existing.path.display().to_string(),
    }
}

/// The disk of a recipe and the bytes it takes on this host, when it is built.
fn built(base: &Base, cache: &Path) -> Option<(PathBuf, u64)> {
    let Base::Debian(debian) = base else {
        return None;
    };
    let path = disk::built(
        debian,
        topolab::agent_binary::bytes(),
        &cache.join(DISK_FOLDER),
    )?;
    let blocks = std::fs::metadata(&path).ok()?.blocks();
    // stat(2): blocks of 512 bytes, whatever the file system has.
    Some((path, blocks * 512))
}

/// What a built Debian image has installed.
pub fn packages(debian: &Debian, folders: &Folders) -> Result<String, Failure> {
    let folder = folders.cache.join(DISK_FOLDER);
    disk::recorded_packages(debian, &folder).map_err(Failure::lab)
}

/// The file a guest starts from.
pub fn file(space: &UserSpace) -> Option<&Path> {
    let disk = space.disk.as_ref().map(|disk| &*disk.path);
    disk.or_else(|| space.initrd.as_ref().map(|image| &*image.path))
}
