//! A place where `topolab` is run as it is typed, with a QEMU that is none.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A release as the fake guest reports it.
const RELEASE: &[u8] = b"6.12.0-fake (nobody@nowhere)\0";

/// A folder with an experiment, a kernel, a cache and a `qemu-system-x86_64` that is none.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    /// `experiment` is one of the kernel `fake` on the topology `one-core`.
    pub fn new(experiment: &str) -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let test = std::env::current_exe().unwrap();
        let target = test.parent().and_then(Path::parent).unwrap();
        let fake = target.join("examples/fake-qemu");
        assert!(
            fake.exists(),
            "build it first: cargo build -p topolab --examples"
        );
        for folder in ["bin", "experiments", "kernels"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        symlink(fake, place.path("bin/qemu-system-x86_64")).unwrap();
        // The header of a bzImage: its magic word, and where its release stands
        // (Documentation/arch/x86/boot.rst).
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x300 + RELEASE.len()].copy_from_slice(RELEASE);
        fs::write(place.path("kernels/bzImage"), image).unwrap();
        fs::write(
            place.path("kernels/fake.yaml"),
            "name: fake\nimage: bzImage\n",
        )
        .unwrap();
        fs::write(place.path("experiments/faked.yaml"), experiment).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn topolab(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.path("bin");
        command
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("TOPOLAB_CACHE", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .args(args)
            .stdin(Stdio::null());
        command
    }
}
