//! The kernel of the tests.
//!
//! It is `linux-6.12@base`, built into the user's cache the first time (minutes)
//! and found there afterwards. `TOPOLAB_TEST_KERNEL=/path/to/bzImage` takes
//! another one in its place.

use std::{
    env,
    path::{Path, PathBuf},
};

use tokio::sync::OnceCell;
use topolab::{
    kernel::{self, Builder, Cache, Ccache, Kernel, Tools, Variant},
    run::KernelImage,
};

/// The checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The user's cache.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache/topolab");
    env::var_os("TOPOLAB_CACHE").map_or_else(home, PathBuf::from)
}

/// The kernel of the tests.
pub async fn kernel() -> KernelImage {
    static BUILT: OnceCell<KernelImage> = OnceCell::const_new();
    BUILT.get_or_init(build).await.clone()
}

async fn build() -> KernelImage {
    if let Some(path) = env::var_os("TOPOLAB_TEST_KERNEL") {
        return KernelImage::of_file(Path::new(&path)).expect("the kernel is there");
    }
    let file = checkout().join("kernels/linux-6.12.yaml");
    let kernel = Kernel::read(&file).unwrap_or_else(|problems| panic!("{problems}"));
    let builder = Builder {
        cache: Cache::inside(&cache()),
        tools: Tools::in_path(env::var_os("PATH").as_deref()),
        jobs: 2,
        ccache: Ccache::Use,
    };
    let built = kernel::build(&builder, &kernel, None, &Variant::Base, &|_| {}).await;
    let built = built.unwrap_or_else(|error| panic!("{error}"));
    KernelImage::from(&built)
}
