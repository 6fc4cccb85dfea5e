//! Builds of a tiny tree with the real make and compiler: the tree's Makefile
//! understands what kbuild understands of the targets that are used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use topolab::kernel::{
    self, BuildEvent, Builder, BuiltKernel, Cache, Ccache, Kernel, KernelError, Tools, Variant,
    check::{self, CheckRequest, Status},
};

const MAKEFILE: &str = r#"
SRCS := $(wildcard kernel/*.c mm/*.c)
OBJS := $(SRCS:%.c=$(O)/%.o)
BOOT := $(O)/arch/x86/boot/bzImage
bzImage: $(BOOT)
$(O)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  CC      $*.o'
	@! grep -q SLOW $< || sleep 60
	@cd $(O) && $(CC) -Wall -Werror=implicit-function-declaration \
	  $$(sed -n 's/^\(CONFIG_.*\)=y/-D\1/p' .config) -c -o $*.o ../$<
$(O)/vmlinux: $(OBJS)
	@echo '  LD      vmlinux'
	@$(CC) -nostdlib -shared -Wl,--build-id=sha1 -o $@ $(OBJS)
$(BOOT): $(O)/vmlinux
	@mkdir -p $(@D)
	@cp $< $@
allnoconfig:
	@cat /dev/null $(KCONFIG_ALLCONFIG) > $(O)/.config
olddefconfig:
	@sed -i '/CONFIG_LOST=/d' $(O)/.config
modules:
	@for c in $(if $(M),$(wildcard $(M)/*.c)); do \
	  if grep -q MISSING $$c; then echo 'ERROR: modpost: "no_such" [m.ko] undefined!'; exit 1; fi; \
	  $(CC) -c -o $${c%.c}.ko $$c || exit 1; done
modules_install:
	@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/6.12.0-tiny/kernel
	@echo own > $(INSTALL_MOD_PATH)/lib/modules/6.12.0-tiny/kernel/own.ko
prepare:
	@mkdir -p $(O)/include/config
	@echo 6.12.0-tiny > $(O)/include/config/kernel.release
"#;

struct Lab {
    folder: tempfile::TempDir,
    builder: Builder,
    events: Mutex<Vec<BuildEvent>>,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH");
        let lab = Self {
            builder: Builder {
                cache: Cache::inside(&folder.path().join("cache")),
                tools: Tools::in_path(path.as_deref()),
                jobs: 1,
                ccache: Ccache::Leave,
            },
            folder,
            events: Mutex::default(),
        };
        lab.write("linux/Makefile", MAKEFILE);
        lab.write(
            "linux/Kconfig",
            "config A\n\tbool \"a\"\nconfig LOST\n\tbool \"l\"\n\tdepends on B\nconfig B\n\tbool \"b\"\n",
        );
        lab.write(
            "linux/kernel/fork.c",
            "int fork_it(void)\n{\n\treturn 1;\n}\n",
        );
        lab.write(
            "linux/kernel/sched.c",
            "int pick(void)\n{\n\treturn 2;\n}\n",
        );
        lab.write("linux/mm/swap.c", "int swap(void)\n{\n\treturn 3;\n}\n");
        lab.write("config/lean.config", "CONFIG_A=y\n");
        lab.write(
            "patches/0001-pick.patch",
            &patch("kernel/sched.c", "2", "20"),
        );
        lab.write("patches/0002-swap.patch", &patch("mm/swap.c", "3", "30"));
        lab.yaml("source: {dir: linux}", "");
        lab
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let place = self.folder.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, text).unwrap();
        place
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let place = self.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}"));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn yaml(&self, source: &str, more: &str) {
        self.write(
            "k.yaml",
            &format!(
                "name: k\n{source}\nconfig:\n  base: allnoconfig\n  fragments: [lean.config]\n{more}\nseries: {{s: patches}}\n"
            ),
        );
    }

    fn kernel(&self) -> Kernel {
        Kernel::read(&self.folder.path().join("k.yaml")).unwrap()
    }

    async fn build(&self, variant: &str) -> Result<BuiltKernel, KernelError> {
        let variant: Variant = variant.parse().unwrap();
        let listen = |event| self.events.lock().unwrap().push(event);
        kernel::build(&self.builder, &self.kernel(), Some("s"), &variant, &listen).await
    }
}

fn patch(path: &str, old: &str, new: &str) -> String {
    format!(
        "From: A <a@b>\nSubject: [PATCH] {path}: {new}\n\nWhy.\n---\n--- a/{path}\n+++ b/{path}\n@@ -1,4 +1,4 @@\n int {}(void)\n {{\n-\treturn {old};\n+\treturn {new};\n }}\n",
        if path.contains("sched") {
            "pick"
        } else {
            "swap"
        }
    )
}

fn listing(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = walkdir::WalkDir::new(folder)
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            (
                entry.path().display().to_string(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn each_variant_compiles_what_it_changes_and_the_users_tree_stays() {
    let lab = Lab::new();
    let before = listing(&lab.folder.path().join("linux"));
    let base = lab.build("base").await.unwrap();
    assert_eq!((base.recompiled, base.cached), (3, false));
    assert_eq!(base.release, "6.12.0-tiny");
    assert_eq!(base.build_id.as_ref().unwrap().len(), 40);
    let first = lab.build("1").await.unwrap();
    assert_eq!(first.recompiled, 1);
    let both = lab.build("all").await.unwrap();
    assert_eq!(both.recompiled, 1);
    let second = lab.build("2").await.unwrap();
    assert_eq!(second.recompiled, 1);
    let mut images = [&base, &first, &both, &second].map(|k| k.image_sha256.clone());
    images.sort();
    assert!(images.windows(2).all(|pair| pair[0] != pair[1]));
    // The same patches by another name.
    let prefix = lab.build("1..2").await.unwrap();
    assert!(prefix.cached && prefix.image == both.image);
    // Back at the beginning, nothing is compiled.
    assert!(lab.build("base").await.unwrap().cached);
    assert_eq!(listing(&lab.folder.path().join("linux")), before);
    let expected = lab
        .events
        .lock()
        .unwrap()
        .iter()
        .find_map(|event| match event {
            BuildEvent::Compiling { expected, .. } => *expected,
            _ => None,
        });
    assert_eq!(expected, Some(3));
}

#[tokio::test]
async fn a_reworded_patch_costs_nothing_and_an_edited_tree_what_it_changes() {
    let lab = Lab::new();
    lab.build("all").await.unwrap();
    let reworded = patch("mm/swap.c", "3", "30").replace("Why.", "Why, told better.");
    lab.write("patches/0002-swap.patch", &reworded);
    assert!(lab.build("all").await.unwrap().cached);
    lab.write(
        "linux/kernel/fork.c",
        "int fork_it(void)\n{\n\treturn 100;\n}\n",
    );
    let edited = lab.build("all").await.unwrap();
    assert_eq!((edited.recompiled, edited.cached), (1, false));
}

#[tokio::test]
async fn a_damaged_image_is_built_again() {
    let lab = Lab::new();
    let base = lab.build("base").await.unwrap();
    fs::write(&base.image, "garbage").unwrap();
    let again = lab.build("base").await.unwrap();
    assert!(!again.cached);
    assert_eq!(again.image_sha256, base.image_sha256);
    assert_ne!(fs::read(&again.image).unwrap(), b"garbage");
}

#[tokio::test]
async fn a_compiler_error_is_shown_with_its_place_and_spoils_nothing() {
    let lab = Lab::new();
    lab.write(
        "patches/0002-swap.patch",
        &patch("mm/swap.c", "3", "nonsense"),
    );
    let error = lab.build("all").await.unwrap_err();
    let KernelError::Build { first, log, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(first.file.as_deref(), Some("mm/swap.c"));
    assert_eq!(first.line, Some(3));
    assert!(first.message.contains("nonsense"), "{first}");
    assert!(
        fs::read_to_string(log)
            .unwrap()
            .contains("CC      mm/swap.o")
    );
    assert!(lab.build("1").await.is_ok());
    assert!(lab.build("all").await.is_err());
}

#[tokio::test]
async fn a_patch_that_does_not_apply_is_named_with_its_hunk() {
    let lab = Lab::new();
    lab.write("patches/0002-swap.patch", &patch("mm/swap.c", "4", "30"));
    let error = lab.build("all").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("patch 2 (0002-swap.patch): mm/swap.c: hunk 1")
            && cause.contains("return 4;")
            && cause.contains("return 3;"),
        "{cause}"
    );
    assert!(lab.build("1").await.is_ok());
}

#[tokio::test]
async fn a_lost_option_is_an_error_with_the_dependency_unless_optional() {
    let lab = Lab::new();
    lab.write("config/lean.config", "CONFIG_A=y\nCONFIG_LOST=y\n");
    let error = lab.build("base").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("lean.config:2: CONFIG_LOST=y was asked for")
            && cause.contains("depends on B (B=n)"),
        "{cause}"
    );
    lab.yaml("source: {dir: linux}", "  optional: [LOST]");
    assert!(lab.build("base").await.is_ok());
}

#[tokio::test]
async fn two_builds_at_once_make_one() {
    let lab = Lab::new();
    let (one, two) = tokio::join!(lab.build("base"), lab.build("base"));
    let cached = [one.unwrap().cached, two.unwrap().cached];
    assert_eq!(cached.iter().filter(|cached| **cached).count(), 1);
    let events = lab.events.lock().unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, BuildEvent::Waiting { .. }))
    );
}

#[tokio::test]
async fn a_build_that_is_given_up_stops_make_and_can_go_on() {
    let lab = Lab::new();
    lab.write(
        "linux/mm/swap.c",
        "/* SLOW */\nint swap(void)\n{\n\treturn 3;\n}\n",
    );
    let given_up = tokio::time::timeout(Duration::from_secs(10), lab.build("base")).await;
    assert!(given_up.is_err());
    // make and its sleep are gone: their working folder is in nobody's hands.
    let tree = lab.folder.path().to_owned();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while anyone_in(&tree) {
        assert!(
            std::time::Instant::now() < deadline,
            "make is still running"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lab.write("linux/mm/swap.c", "int swap(void)\n{\n\treturn 3;\n}\n");
    let built = lab.build("base").await.unwrap();
    assert_eq!(built.recompiled, 1, "the two finished objects are kept");
}

/// True when a process has its working folder below `folder`.
fn anyone_in(folder: &Path) -> bool {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .any(|cwd| cwd.starts_with(folder))
}

/// Stands for Debian's tools: a source package, and a meta package whose kernel is
/// in another one.
fn debian(lab: &mut Lab) {
    let bin = lab.folder.path().join("bin");
    lab.script(
        "apt-cache",
        "case $1 in\npkgnames) printf '%s\\n' linux-source-6.12 linux-image-amd64 linux-image-6.12.9-amd64 linux-image-6.12.10-amd64;;\n\
         show) printf 'Package: linux-image-6.12.9-amd64\\nVersion: 6.12.9-1\\n\\nPackage: linux-image-6.12.10-amd64\\nVersion: 6.12.10-1\\n';;\nesac\n",
    );
    lab.script(
        "apt-get",
        "for last; do :; done\ncase \"$*\" in\n*--print-uris*) echo \"'http://x/$last.deb' ${last}_1_all.deb 1\";;\n\
         *) echo \"$last\" > \"${last}_1_all.deb\"; echo \"$last\" >> \"$(dirname \"$0\")/fetched\";;\nesac\n",
    );
    lab.script(
        "dpkg-deb",
        "name=$(cat \"$2\")\ncase $1 in\n-f) [ \"$name\" != linux-image-amd64 ] || echo 'linux-image-6.12.10-amd64 (= 6.12.10-1)';;\n\
         -x) mkdir -p \"$3\"; case $name in\n\
         linux-source-*) mkdir -p \"$3/usr/src\"; tar -cJf \"$3/usr/src/linux-source-6.12.tar.xz\" -C \"$(dirname \"$0\")/..\" linux;;\n\
         linux-image-6*) mkdir -p \"$3/boot\" \"$3/lib/modules/6.12.10-amd64\"; cp \"$(dirname \"$0\")/../bzImage\" \"$3/boot/vmlinuz-6.12.10-amd64\";\n\
         echo CONFIG_SMP=y > \"$3/boot/config-6.12.10-amd64\";;\n esac;;\nesac\n",
    );
    lab.builder.tools.apt_cache = bin.join("apt-cache");
    lab.builder.tools.apt_get = bin.join("apt-get");
    lab.builder.tools.dpkg_deb = bin.join("dpkg-deb");
    let mut image = vec![0u8; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    image[0x300..0x310].copy_from_slice(b"6.12.10-amd64 (b");
    fs::write(lab.folder.path().join("bzImage"), image).unwrap();
}

#[tokio::test]
async fn source_out_of_a_package_is_fetched_once() {
    let mut lab = Lab::new();
    debian(&mut lab);
    lab.yaml("source: {package: 'linux-source-6.*'}", "");
    let base = lab.build("base").await.unwrap();
    assert_eq!(base.recompiled, 3);
    assert_eq!(lab.build("1").await.unwrap().recompiled, 1);
    let fetched = fs::read_to_string(lab.folder.path().join("bin/fetched")).unwrap();
    assert_eq!(fetched, "linux-source-6.12\n");
}

#[tokio::test]
async fn a_kernel_package_is_taken_apart_through_its_meta_package() {
    let mut lab = Lab::new();
    debian(&mut lab);
    for pattern in ["linux-image-amd64", "linux-image-6.12*-amd64"] {
        lab.write("k.yaml", &format!("name: k\npackage: {pattern}\n"));
        let listen = |_| {};
        let built = kernel::build(&lab.builder, &lab.kernel(), None, &Variant::Base, &listen)
            .await
            .unwrap();
        assert_eq!(built.release, "6.12.10-amd64");
        assert!(built.read_config().unwrap().unwrap().is_on("SMP"));
        assert!(
            built
                .modules
                .unwrap()
                .join("lib/modules/6.12.10-amd64")
                .is_dir()
        );
    }
    let error = lab.build("all").await.unwrap_err();
    assert!(matches!(error, KernelError::Prebuilt { .. }), "{error}");
}

#[tokio::test]
async fn a_package_that_does_not_exist_and_a_wrong_checksum() {
    let mut lab = Lab::new();
    debian(&mut lab);
    lab.yaml("source: {package: linux-source-6.13}", "");
    let error = lab.build("base").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        cause,
        "no package matches 'linux-source-6.13'; there are linux-source-6.12"
    );
    lab.write("src.tar", "no tarball");
    let sum = "0".repeat(64);
    lab.yaml(
        &format!("source: {{tarball: {{path: src.tar, sha256: '{sum}'}}}}"),
        "",
    );
    let error = lab.build("base").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("has SHA-256") && cause.contains(&sum),
        "{cause}"
    );
}

/// A series whose second patch calls a helper that exists only with CONFIG_A; the
/// third defines it for everybody.
fn broken_series(lab: &Lab) {
    let mail = |number: u32, title: &str, diff: &str| {
        lab.write(
            &format!("patches/000{number}-x.patch"),
            &format!("From: A <a@b>\nSubject: [PATCH {number}/3] {title}\n\nWhy.\n\nSigned-off-by: A <a@b>\n---\n{diff}"),
        );
    };
    fs::remove_file(lab.folder.path().join("patches/0001-pick.patch")).unwrap();
    fs::remove_file(lab.folder.path().join("patches/0002-swap.patch")).unwrap();
    mail(
        1,
        "a helper",
        "--- /dev/null\n+++ b/mm/helper.h\n@@ -0,0 +1,3 @@\n+#ifdef CONFIG_A\n+static inline int helper(void) { return 7; }\n+#endif\n",
    );
    mail(
        2,
        "call it",
        "--- a/mm/swap.c\n+++ b/mm/swap.c\n@@ -1,4 +1,6 @@\n+#include \"helper.h\"\n int swap(void)\n {\n-\treturn 3;\n+\tint unused;\n+\treturn helper();\n }\n",
    );
    mail(
        3,
        "for everybody",
        "--- a/mm/helper.h\n+++ b/mm/helper.h\n@@ -1,3 +1,5 @@\n #ifdef CONFIG_A\n static inline int helper(void) { return 7; }\n+#else\n+static inline int helper(void) { return 0; }\n #endif\n\
--- a/mm/swap.c\n+++ b/mm/swap.c\n@@ -1,6 +1,6 @@\n #include \"helper.h\"\n int swap(void)\n {\n-\tint unused;\n+\tint unused; /* still */\n \treturn helper();\n }\n",
    );
}

fn request(targets: &[&str]) -> CheckRequest {
    CheckRequest {
        series: "s".to_owned(),
        targets: targets.iter().map(|t| t.parse().unwrap()).collect(),
        warnings: None,
        sparse: false,
        checkpatch: true,
        first_bad: false,
    }
}

#[tokio::test]
async fn the_check_names_the_patch_the_target_and_the_line_and_what_heals_it() {
    let lab = Lab::new();
    broken_series(&lab);
    let targets = ["x86_64:own", "x86_64:allnoconfig", "alpha:allnoconfig"];
    let listen = |event| lab.events.lock().unwrap().push(event);
    let checked = check::check(&lab.builder, &lab.kernel(), &request(&targets), &listen).await;
    let report = checked.unwrap();
    let statuses: Vec<Vec<&Status>> = report
        .patches
        .iter()
        .map(|patch| patch.cells[..2].iter().map(|cell| &cell.status).collect())
        .collect();
    assert_eq!(
        statuses,
        [
            [&Status::Ok, &Status::Ok],
            [&Status::Ok, &Status::Broken],
            [&Status::Ok, &Status::Ok],
        ]
    );
    let broken = &report.patches[1].cells[1];
    let finding = &broken.errors[0];
    assert_eq!(broken.errors.len(), 1);
    assert_eq!(
        (finding.diagnostic.file.as_deref(), finding.diagnostic.line),
        (Some("mm/swap.c"), Some(5))
    );
    assert!(finding.diagnostic.message.contains("helper"));
    assert_eq!(finding.diagnostic.function.as_deref(), Some("swap"));
    assert!(
        finding
            .source
            .contains(&">     5  \treturn helper();".to_owned()),
        "{finding:?}"
    );
    assert_eq!(
        broken.reproduce,
        [
            "git am 0001-x.patch 0002-x.patch",
            "make ARCH=x86_64 CC=gcc allnoconfig",
            "make ARCH=x86_64 CC=gcc mm/swap.o",
        ]
    );
    // The warning is the second patch's, and not again the third's.
    assert_eq!(report.patches[1].cells[0].warnings.len(), 1);
    assert!(
        report.patches[2]
            .cells
            .iter()
            .all(|cell| cell.warnings.is_empty())
    );
    assert_eq!(report.patches[2].cells[1].healed, 1);
    assert!(report.broken() && !report.patches[1].bisects() && report.patches[2].bisects());
    // A target without a compiler is told, and the others go on.
    let alpha = report.targets[2].not_tested.as_deref().unwrap();
    assert!(alpha.contains("gcc-alpha-linux-gnu"), "{alpha}");
    assert!(matches!(
        report.patches[0].cells[2].status,
        Status::NotTested { .. }
    ));
    // A patch recompiles what it touches; asked again, nothing is compiled.
    assert_eq!(report.patches[1].cells[0].recompiled, 1);
    lab.events.lock().unwrap().clear();
    let checked = check::check(&lab.builder, &lab.kernel(), &request(&targets), &listen).await;
    assert_eq!(checked.unwrap().patches, report.patches);
    let compiled = |event: &BuildEvent| matches!(event, BuildEvent::Compiling { .. });
    assert!(!lab.events.lock().unwrap().iter().any(compiled));
}

#[tokio::test]
async fn a_check_can_stop_at_the_first_bad_patch() {
    let lab = Lab::new();
    broken_series(&lab);
    let request = CheckRequest {
        first_bad: true,
        ..request(&["x86_64:allnoconfig"])
    };
    let listen = |_| {};
    let report = check::check(&lab.builder, &lab.kernel(), &request, &listen)
        .await
        .unwrap();
    assert_eq!(report.patches.len(), 2);
    assert!(!report.patches[1].bisects());
}

#[tokio::test]
async fn modules_are_built_against_a_variant_and_missing_symbols_named() {
    let lab = Lab::new();
    lab.write("modules/m/Kbuild", "obj-m := m.o\n");
    lab.write("modules/m/m.c", "int spin(void) { return 1; }\n");
    let folders = [lab.folder.path().join("modules/m")];
    let listen = |_| {};
    let add = async |built: &BuiltKernel| {
        kernel::with_modules(&lab.builder, &lab.kernel(), built, &folders, &listen).await
    };
    let plain = lab.build("1").await.unwrap();
    let error = add(&plain).await.unwrap_err();
    assert!(
        error.to_string().contains("CONFIG_MODULES is off"),
        "{error}"
    );

    lab.write(
        "config/lean.config",
        "CONFIG_A=y\nCONFIG_MODULES=y\nCONFIG_DRIVER=m\n",
    );
    lab.write(
        "linux/Kconfig",
        "config A\n\tbool \"a\"\nconfig MODULES\n\tbool \"m\"\nconfig DRIVER\n\ttristate \"d\"\n",
    );
    let built = lab.build("1").await.unwrap();
    let own = built.modules.clone().unwrap();
    assert!(own.join("lib/modules/6.12.0-tiny/kernel/own.ko").is_file());
    // Another variant is built in between: the module is for the first.
    lab.build("2").await.unwrap();
    let with = add(&built).await.unwrap();
    let root = with
        .modules
        .clone()
        .unwrap()
        .join("lib/modules/6.12.0-tiny");
    assert!(root.join("extra/m.ko").is_file() && root.join("kernel/own.ko").is_file());
    assert_eq!(with.image_sha256, built.image_sha256);
    assert!(
        !folders[0].join("m.ko").exists(),
        "the user's folder stays clean"
    );
    // Kept, and noticed when damaged.
    assert_eq!(add(&built).await.unwrap().modules, with.modules);
    let sound = fs::read(root.join("extra/m.ko")).unwrap();
    fs::write(root.join("extra/m.ko"), "damage").unwrap();
    add(&built).await.unwrap();
    assert_eq!(fs::read(root.join("extra/m.ko")).unwrap(), sound);

    lab.write("modules/m/m.c", "/* MISSING */\n");
    let error = add(&built).await.unwrap_err();
    assert!(
        error.to_string().contains("\"no_such\" [m.ko] undefined!"),
        "{error}"
    );
}
