//! The texts that `sbatch` takes. Pure; every one is a snapshot.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use super::{
    block::Request,
    plan::{Array, Wish, indices},
};

/// A task that Slurm started anew this often is left alone: what ends it again
/// and again is not the node.
pub const RESTARTS: u32 = 4;

/// Before a time limit or a preemption the task is told so many seconds ahead;
/// the guest is ended within a few.
const WARNING_SECONDS: u32 = 60;

/// What all scripts of a campaign share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site<'a> {
    /// This program, on a path that nodes share.
    pub topolab: &'a Path,
    /// The cache.
    pub cache: &'a Path,
    /// The results folder.
    pub results: &'a Path,
    /// Name of the campaign's jobs begins with it; no other campaign has it.
    pub id: &'a str,
    /// What the user asks for.
    pub wish: &'a Wish,
}

impl Site<'_> {
    /// The name of an array's jobs. Tasks that are submitted again get another.
    pub fn array_name(&self, array: usize, submission: u32) -> String {
        format!("{}-a{array}-s{submission}", self.id)
    }

    /// The name of the build job.
    pub fn build_name(&self, submission: u32) -> String {
        format!("{}-build-s{submission}", self.id)
    }

    /// Folder of what jobs write.
    fn log(&self) -> PathBuf {
        self.results.join("batch/log")
    }

    fn head(&self, name: &str, request: Request) -> String {
        let mut text = String::from("#!/bin/sh\n");
        let mut option = |line: &str| {
            text.push_str("#SBATCH ");
            text.push_str(line);
            text.push('\n');
        };
        option(&format!("--job-name={name}"));
        option("--nodes=1 --ntasks=1");
        option(&format!("--cpus-per-task={}", request.cpus));
        option(&format!("--mem={}M", request.memory_mib));
        option(&format!("--time={}", request.minutes));
        option("--requeue");
        option("--open-mode=append");
        // A run cannot begin when what it needs was not made.
        option("--kill-on-invalid-dep=yes");
        for (name, value) in [
            ("partition", &self.wish.partition),
            ("account", &self.wish.account),
        ] {
            if let Some(value) = value {
                option(&format!("--{name}={}", quoted(value)));
            }
        }
        text
    }

    fn foot(cache: &Path) -> String {
        format!(
            "[ \"${{SLURM_RESTART_COUNT:-0}}\" -le {RESTARTS} ] || exit 75\n\
             export TOPOLAB_CACHE={}\n",
            quoted_path(cache)
        )
    }

    /// The script that builds kernels and the image, and writes the units.
    pub fn build(&self, request: Request, submission: u32) -> String {
        let name = self.build_name(submission);
        let mut text = self.head(&name, request);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "#SBATCH --output={}",
            quoted_path(&self.log().join("build.log"))
        );
        // What is built is built for all nodes.
        text += &Self::foot(self.cache);
        let _ = writeln!(
            text,
            "exec {} batch-build {}",
            quoted_path(self.topolab),
            quoted_path(self.results)
        );
        text
    }

    /// The script of an array. Its tasks look up their unit by their index.
    pub fn array(&self, number: usize, array: &Array, tasks: &[usize], submission: u32) -> String {
        let name = self.array_name(number, submission);
        let mut text = self.head(&name, array.request);
        let mut lines = vec![
            format!("--array={}", indices(tasks)),
            // Told before the limit, the task ends its guest and leaves whole files.
            format!("--signal=B:TERM@{WARNING_SECONDS}"),
            format!(
                "--output={}",
                quoted_path(&self.log().join(format!("a{number}-%a.log")))
            ),
        ];
        if self.wish.exclusive {
            lines.push("--exclusive".into());
        }
        if let Some(constraint) = &self.wish.constraint {
            lines.push(format!("--constraint={}", quoted(constraint)));
        }
        for line in lines {
            let _ = writeln!(text, "#SBATCH {line}");
        }
        text += &Self::foot(self.wish.node_cache.as_deref().unwrap_or(self.cache));
        // The task's number is all that differs between them.
        let units = self.results.join(format!("batch/units/a{number}"));
        let _ = writeln!(
            text,
            "exec {} run-cell {}/\"$SLURM_ARRAY_TASK_ID\".json",
            quoted_path(self.topolab),
            quoted_path(&units)
        );
        text
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// For the shell, and for `#SBATCH` lines, which know the same quotes.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+@=,:%&|".contains(c);
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./+@=,:%".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        return text.into();
    }
    if text.chars().all(plain) && !text.is_empty() {
        return format!("\"{text}\"");
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        cpus: 5,
        memory_mib: 1536,
        minutes: 47,
    };

    fn wish() -> Wish {
        Wish {
            partition: Some("lab".into()),
            account: Some("kernel".into()),
            constraint: Some("kvm&rome".into()),
            exclusive: true,
            ..Wish::default()
        }
    }

    fn site(wish: &Wish) -> Site<'_> {
        Site {
            topolab: Path::new("/shared/bin/topolab"),
            cache: Path::new("/shared/topolab cache"),
            results: Path::new("/shared/results/numa-scan-1"),
            id: "topolab-1a2b",
            wish,
        }
    }

    #[test]
    fn an_array_asks_for_what_its_guests_need() {
        let array = Array {
            request: REQUEST,
            blocks: vec![4, 5, 6],
        };
        insta::assert_snapshot!(site(&wish()).array(2, &array, &[0, 1, 2], 0), @r#"
        #!/bin/sh
        #SBATCH --job-name=topolab-1a2b-a2-s0
        #SBATCH --nodes=1 --ntasks=1
        #SBATCH --cpus-per-task=5
        #SBATCH --mem=1536M
        #SBATCH --time=47
        #SBATCH --requeue
        #SBATCH --open-mode=append
        #SBATCH --kill-on-invalid-dep=yes
        #SBATCH --partition=lab
        #SBATCH --account=kernel
        #SBATCH --array=0-2
        #SBATCH --signal=B:TERM@60
        #SBATCH --output=/shared/results/numa-scan-1/batch/log/a2-%a.log
        #SBATCH --exclusive
        #SBATCH --constraint="kvm&rome"
        [ "${SLURM_RESTART_COUNT:-0}" -le 4 ] || exit 75
        export TOPOLAB_CACHE='/shared/topolab cache'
        exec /shared/bin/topolab run-cell /shared/results/numa-scan-1/batch/units/a2/"$SLURM_ARRAY_TASK_ID".json
        "#);
    }

    #[test]
    fn a_build_is_one_job() {
        let wish = Wish {
            partition: None,
            account: None,
            node_cache: Some("/var/tmp/topolab".into()),
            ..wish()
        };
        insta::assert_snapshot!(site(&wish).build(REQUEST, 1), @r#"
        #!/bin/sh
        #SBATCH --job-name=topolab-1a2b-build-s1
        #SBATCH --nodes=1 --ntasks=1
        #SBATCH --cpus-per-task=5
        #SBATCH --mem=1536M
        #SBATCH --time=47
        #SBATCH --requeue
        #SBATCH --open-mode=append
        #SBATCH --kill-on-invalid-dep=yes
        #SBATCH --output=/shared/results/numa-scan-1/batch/log/build.log
        [ "${SLURM_RESTART_COUNT:-0}" -le 4 ] || exit 75
        export TOPOLAB_CACHE='/shared/topolab cache'
        exec /shared/bin/topolab batch-build /shared/results/numa-scan-1
        "#);
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("kvm&x"), "\"kvm&x\"");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/a/b-c"), "/a/b-c");
    }
}
