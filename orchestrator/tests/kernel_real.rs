//! Real kernels. Each test builds some from Debian's source, for minutes, so none runs
//! unless it is asked for:
//!
//! ```text
//! cargo test -p topolab --test kernel_real -- --ignored --test-threads 1 --nocapture
//! ```
//!
//! `TOPOLAB_CACHE`, if set, names the cache; what was built there stays.

use std::path::{Path, PathBuf};

use topolab::kernel::{
    self, Builder, Cache, Ccache, Kernel, KernelRef, KernelRequest, Tools, Variant,
    check::{self, CheckRequest, Status},
};

struct Bench {
    builder: Builder,
    _scratch: Option<tempfile::TempDir>,
}

fn bench() -> Bench {
    let (cache, scratch) = match std::env::var_os("TOPOLAB_CACHE") {
        Some(cache) => (PathBuf::from(cache), None),
        None => {
            let scratch = tempfile::tempdir().unwrap();
            (scratch.path().to_owned(), Some(scratch))
        }
    };
    let cpus = std::thread::available_parallelism().unwrap().get();
    Bench {
        builder: Builder {
            cache: Cache::inside(&cache),
            tools: Tools::in_path(std::env::var_os("PATH").as_deref()),
            jobs: u32::try_from(cpus).unwrap(),
            ccache: Ccache::Use,
        },
        _scratch: scratch,
    }
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// The checkout's kernel, with another series.
fn kernel(folder: &Path, series: &Path) -> Kernel {
    let text = format!(
        "name: k\nsource: {{package: linux-source-6.12}}\nconfig:\n  base: allnoconfig\n  fragments: [{0}/lean.config, {0}/trace.config]\nseries: {{s: {1}}}\n",
        checkout().join("kernels/config").display(),
        series.display()
    );
    let file = folder.join("k.yaml");
    std::fs::write(&file, text).unwrap();
    Kernel::read(&file).unwrap()
}

#[tokio::test]
#[ignore = "builds kernels for User Mode Linux and x86-64"]
async fn the_check_finds_what_breaks_only_small_configurations() {
    let bench = bench();
    let folder = tempfile::tempdir().unwrap();
    let series = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nosmp-break");
    let request = CheckRequest {
        series: "s".to_owned(),
        targets: ["x86_64:own", "um:allnoconfig"]
            .map(|t| t.parse().unwrap())
            .to_vec(),
        warnings: None,
        sparse: false,
        checkpatch: true,
        first_bad: false,
    };
    let kernel = kernel(folder.path(), &series);
    let report = check::check(&bench.builder, &kernel, &request, &|_| {})
        .await
        .unwrap();
    for patch in &report.patches {
        assert_eq!(patch.cells[0].status, Status::Ok, "{}", patch.subject);
        assert!(patch.signed_off);
        assert!(
            patch.checkpatch.as_ref().unwrap().notes.is_empty(),
            "{patch:?}"
        );
    }
    let um: Vec<&Status> = report.patches.iter().map(|p| &p.cells[1].status).collect();
    assert_eq!(um, [&Status::Ok, &Status::Broken, &Status::Ok]);
    let error = &report.patches[1].cells[1].errors[0].diagnostic;
    assert_eq!(error.file.as_deref(), Some("mm/swap.c"));
    assert!(error.message.contains("other_cpus_have_batches"), "{error}");
    assert_eq!(report.patches[2].cells[1].healed, 1);
}

#[tokio::test]
#[ignore = "builds two kernels for x86-64 and a module"]
async fn a_variant_costs_what_it_recompiles_and_takes_modules() {
    let bench = bench();
    let folder = tempfile::tempdir().unwrap();
    let series = checkout().join("kernels/patches/numa-scan-skip");
    let kernel = kernel(folder.path(), &series);
    let base = kernel::build(&bench.builder, &kernel, None, &Variant::Base, &|_| {})
        .await
        .unwrap();
    let all = kernel::build(&bench.builder, &kernel, Some("s"), &Variant::All, &|_| {});
    let all = all.await.unwrap();
    // fair.c and the few objects that every link makes anew. What an earlier run left
    // in the cache may have been made in another order.
    if !base.cached && !all.cached {
        assert!(all.recompiled < 20, "{}", all.recompiled);
    }
    assert_ne!(all.image_sha256, base.image_sha256);
    assert_ne!(all.build_id, base.build_id);
    let mdspin = [checkout().join("kernels/modules/mdspin")];
    let with = kernel::with_modules(&bench.builder, &kernel, &all, &mdspin, &|_| {})
        .await
        .unwrap();
    let module = with
        .modules
        .unwrap()
        .join("lib/modules")
        .join(&all.release)
        .join("extra/mdspin.ko");
    assert!(module.is_file());
}

#[tokio::test]
#[ignore = "downloads a kernel package and its headers"]
async fn a_module_is_built_against_a_distributions_headers() {
    let bench = bench();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.yaml");
    std::fs::write(
        &file,
        "name: k\npackage: linux-image-6.12*+deb*-cloud-amd64\n",
    )
    .unwrap();
    let kernel = Kernel::read(&file).unwrap();
    let built = kernel::build(&bench.builder, &kernel, None, &Variant::Base, &|_| {})
        .await
        .unwrap();
    assert_eq!(built.build_id.as_ref().map(String::len), Some(40));
    let mdspin = [checkout().join("kernels/modules/mdspin")];
    let with = kernel::with_modules(&bench.builder, &kernel, &built, &mdspin, &|_| {})
        .await
        .unwrap();
    let root = with
        .modules
        .unwrap()
        .join("lib/modules")
        .join(&built.release);
    assert!(root.join("extra/mdspin.ko").is_file());
    // The package's own modules are there too.
    assert!(root.join("kernel/drivers").is_dir());
}

#[tokio::test]
#[ignore = "configures a kernel"]
async fn a_lost_option_of_the_real_tree_is_explained() {
    let bench = bench();
    let kernel = Kernel::read(&checkout().join("kernels/linux-6.12.yaml")).unwrap();
    let reference: KernelRef = "linux-6.12".parse().unwrap();
    let configured = kernel::configure(&bench.builder, &kernel, &reference, &|_| {})
        .await
        .unwrap();
    assert!(configured.lost.is_empty(), "{:?}", configured.lost);
    let why = |option: &str| configured.story(option).why.to_string();
    assert!(
        why("XFS_FS").contains("it depends on BLOCK (BLOCK=n)"),
        "{}",
        why("XFS_FS")
    );
    assert!(why("NUMA_BALANCNG").contains("did you mean NUMA_BALANCING?"));
    assert!(why("PREEMPT_RT").contains("only one of a choice can be on"));
}

/// Patches of the checkout's series, each to C files only and each applying alone.
const SIX: [&str; 6] = [
    "lru-drain/0001",
    "lru-drain/0002",
    "rt-push/0001",
    "numa-scan-skip/0001",
    "lru-drain/0003",
    "itmt-stall/0001",
];

/// Copies [`SIX`] into a folder, numbered anew.
fn six(folder: &Path) -> PathBuf {
    let series = folder.join("six");
    std::fs::create_dir(&series).unwrap();
    for (number, wanted) in (1..).zip(SIX) {
        let (of, start) = wanted.split_once('/').unwrap();
        let patches = std::fs::read_dir(checkout().join("kernels/patches").join(of)).unwrap();
        let patch = patches
            .map(|entry| entry.unwrap().path())
            .find(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with(start)
            })
            .unwrap();
        std::fs::copy(patch, series.join(format!("{number:04}.patch"))).unwrap();
    }
    series
}

/// CPU seconds of all children that ended, with theirs: cutime and cstime of proc(5),
/// in ticks of 10 ms.
fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(13) + ticks(14)) / 100.0
}

/// The figures of docs/kernels.md. Wall-clock figures need a machine that does nothing
/// else, and the bar is for two CPUs.
#[tokio::test]
#[ignore = "builds a kernel from scratch and twelve variants: ten minutes of two CPUs"]
async fn six_patches_cost_little_more_than_one_build() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Builder {
        cache: Cache::inside(&folder.path().join("cache")),
        ccache: Ccache::Leave,
        ..bench().builder
    };
    let kernel = kernel(folder.path(), &six(folder.path()));
    // Brings the source in; that is not part of a build.
    let base: KernelRef = "k@base".parse().unwrap();
    kernel::configure(&builder, &kernel, &base, &|_| {})
        .await
        .unwrap();
    let mut points = vec![base];
    for request in ["k+s@each", "k+s@prefixes"] {
        let request: KernelRequest = request.parse().unwrap();
        let more = kernel::expand(&kernel, &request, &builder.tools).await;
        points.extend(more.unwrap());
    }
    let order = kernel::order(&kernel, &points, &builder.tools).await;
    let (mut full, mut together) = (None, (0.0, 0.0));
    println!("variant                objects  seconds  CPU seconds");
    for point in order.into_iter().map(|at| &points[at]) {
        let before = children_cpu_seconds();
        let series = point.series.as_deref();
        let built = kernel::build(&builder, &kernel, series, &point.variant, &|_| {})
            .await
            .unwrap();
        let seconds = if built.cached { 0.0 } else { built.seconds };
        let cpu = children_cpu_seconds() - before;
        let name = point.variant.to_string();
        println!("{name:20} {:9} {seconds:8.1} {cpu:12.1}", built.recompiled);
        full.get_or_insert((seconds, cpu));
        together = (together.0 + seconds, together.1 + cpu);
    }
    let full: (f64, f64) = full.unwrap();
    let times = (together.0 / full.0, together.1 / full.1);
    println!(
        "together {:.2} x one full build; in CPU time {:.2} x",
        times.0, times.1
    );
    assert!(times.0 <= 1.6 && times.1 <= 1.6, "{times:?}");
    // Each from scratch takes as long as the first, which was.
    let scratch = points.len() as f64 / times.0;
    println!("from scratch each: {scratch:.1} x as long");
    assert!(scratch >= 8.0, "{scratch}");
}
