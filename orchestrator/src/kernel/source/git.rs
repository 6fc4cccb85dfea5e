//! Source at a commit of a git repository. A repository of our own in the cache
//! borrows the user's objects and has a checkout of its own, so the user's
//! checkout, index and branches are neither needed nor touched, whatever state
//! they are in.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::super::built::BuildEvent;
use super::super::cache::{Cache, sha256_parts, write_whole};
use super::super::tools::{self, ToolError, Tools, output};
use super::{Events, History, SourceError, SourceTree, io_error, is_kernel};

/// A repository or commit that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The repository is none, or may not be read.
    #[error("'{repo}' cannot be read as a git repository")]
    Repository {
        /// Path or address.
        repo: String,
        /// What git said.
        source: ToolError,
    },
    /// The reference names no commit.
    #[error("'{reference}' names no commit in '{repo}'")]
    NoCommit {
        /// Path or address.
        repo: String,
        /// What was asked for.
        reference: String,
        /// What git said.
        source: ToolError,
    },
    /// The range is empty, or no range.
    #[error("'{range}' holds no commits in '{repo}': write BASE..TIP")]
    EmptyRange {
        /// Path of the repository.
        repo: String,
        /// What was asked for.
        range: String,
    },
}

/// git, without what the caller's environment or settings would change.
pub(crate) fn command(git: &Path) -> Command {
    let mut command = tools::command(git);
    settle(&mut command);
    command
}

/// Takes away what would point git elsewhere or run the user's hooks.
pub(super) fn settle(command: &mut Command) {
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
    ] {
        command.env_remove(name);
    }
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(["-c", "core.hooksPath=/dev/null"])
        .args(["-c", "core.autocrlf=false"])
        .args(["-c", "advice.detachedHead=false"])
        .args(["-c", "gc.auto=0"]);
}

/// Checks a commit out into the cache.
pub(super) async fn checkout(
    repo: &str,
    reference: &str,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let local = fs::canonicalize(repo).ok();
    let place = local
        .as_ref()
        .map_or_else(|| repo.to_owned(), |path| path.display().to_string());
    let lineage = format!("git-{}", &sha256_parts([place.as_bytes()])[..16]);
    let entry = cache.entry("sources", &lineage);
    let lock = cache
        .lock("sources", &lineage, |lock| {
            events(BuildEvent::Waiting { lock: lock.into() });
        })
        .await
        .map_err(io_error(&entry))?;
    let dir = entry.join("git");
    let tree = entry.join("tree");
    fs::create_dir_all(&tree).map_err(io_error(&tree))?;
    let repository = |source| GitError::Repository {
        repo: repo.to_owned(),
        source,
    };
    if !dir.join("HEAD").is_file() {
        output(
            command(&tools.git)
                .args(["init", "--quiet", "--bare"])
                .arg(&dir),
        )
        .await
        .map_err(repository)?;
    }
    let no_commit = |source| GitError::NoCommit {
        repo: repo.to_owned(),
        reference: reference.to_owned(),
        source,
    };
    let commit = match &local {
        Some(path) => {
            let objects = line(command(&tools.git).arg("-C").arg(path).args([
                "rev-parse",
                "--path-format=absolute",
                "--git-path",
                "objects",
            ]))
            .await
            .map_err(repository)?;
            let alternates = dir.join("objects/info/alternates");
            write_whole(&alternates, format!("{objects}\n").as_bytes())
                .map_err(io_error(&alternates))?;
            line(
                command(&tools.git)
                    .arg("-C")
                    .arg(path)
                    .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
                    .arg(format!("{reference}^{{commit}}")),
            )
            .await
            .map_err(no_commit)?
        }
        None => {
            events(BuildEvent::Fetching {
                what: format!("{reference} of {repo}"),
            });
            output(
                command(&tools.git)
                    .arg("--git-dir")
                    .arg(&dir)
                    .args([
                        "fetch",
                        "--quiet",
                        "--depth=1",
                        "--no-tags",
                        "--end-of-options",
                    ])
                    .args([repo, reference]),
            )
            .await
            .map_err(no_commit)?;
            line(command(&tools.git).arg("--git-dir").arg(&dir).args([
                "rev-parse",
                "--verify",
                "FETCH_HEAD^{commit}",
            ]))
            .await
            .map_err(no_commit)?
        }
    };
    let mut ours = command(&tools.git);
    ours.arg("--git-dir").arg(&dir);
    let hash = line(ours.arg("rev-parse").arg(format!("{commit}^{{tree}}")))
        .await
        .map_err(repository)?;
    events(BuildEvent::Unpacking {
        what: format!("{reference} of {repo}"),
    });
    // git replaces a changed file by a new one, so hard links to the old one stay
    // what they are.
    output(
        command(&tools.git)
            .arg("--git-dir")
            .arg(&dir)
            .arg("--work-tree")
            .arg(&tree)
            .args(["checkout", "--quiet", "--force", "--detach"])
            .arg(&commit)
            .current_dir(&tree),
    )
    .await
    .map_err(repository)?;
    if !is_kernel(&tree) {
        return Err(SourceError::NotAKernel { path: repo.into() });
    }
    Ok(SourceTree {
        id: format!("git:{hash}"),
        lineage,
        path: tree,
        history: History::Git {
            dir,
            git: tools.git.clone(),
        },
        lock: Some(lock),
    })
}

/// Paths that differ between two trees.
pub(super) async fn changed(git: &Path, dir: &Path, old: &str, new: &str) -> Option<Vec<String>> {
    let (old, new) = (old.strip_prefix("git:")?, new.strip_prefix("git:")?);
    let mut command = command(git);
    let said = output(
        command
            .arg("--git-dir")
            .arg(dir)
            .args(["diff-tree", "-r", "-z", "--name-only", "--no-renames"])
            .args([old, new]),
    )
    .await
    .ok()?;
    Some(
        said.split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect(),
    )
}

/// The commits of a range, oldest first, each as `git format-patch` writes it.
pub(crate) async fn patches_of_range(
    repo: &Path,
    range: &str,
    tools: &Tools,
) -> Result<Vec<(PathBuf, Vec<u8>)>, GitError> {
    let repository = |source| GitError::Repository {
        repo: repo.display().to_string(),
        source,
    };
    let empty = || GitError::EmptyRange {
        repo: repo.display().to_string(),
        range: range.to_owned(),
    };
    if !range.contains("..") {
        return Err(empty());
    }
    let commits = output(
        command(&tools.git)
            .arg("-C")
            .arg(repo)
            .args(["rev-list", "--reverse", "--no-merges", "--end-of-options"])
            .arg(range),
    )
    .await
    .map_err(repository)?;
    let commits = String::from_utf8_lossy(&commits).into_owned();
    let mut patches = Vec::new();
    for commit in commits.lines() {
        let text = output(
            command(&tools.git)
                .arg("-C")
                .arg(repo)
                .args(["format-patch", "-1", "--stdout", "--no-signature"])
                // The user's settings must not change how the diff is written.
                .args([
                    "--no-ext-diff",
                    "--no-textconv",
                    "--src-prefix=a/",
                    "--dst-prefix=b/",
                ])
                .args([
                    "--unified=3",
                    "--diff-algorithm=myers",
                    "--no-color",
                    "--full-index",
                ])
                .arg(commit),
        )
        .await
        .map_err(repository)?;
        patches.push((PathBuf::from(&commit[..commit.len().min(12)]), text));
    }
    if patches.is_empty() {
        return Err(empty());
    }
    Ok(patches)
}

/// The first line a command says.
async fn line(command: &mut Command) -> Result<String, ToolError> {
    let said = output(command).await?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools::in_path(std::env::var_os("PATH").as_deref())
    }

    async fn git(repo: &Path, args: &[&str]) -> String {
        let mut command = command(Path::new("git"));
        command
            .arg("-C")
            .arg(repo)
            .args(["-c", "user.name=t", "-c", "user.email=t@t"])
            .args(args);
        line(&mut command).await.unwrap()
    }

    /// A repository with two commits, a dirty file and a staged one.
    async fn repository(place: &Path) -> PathBuf {
        let repo = place.join("linux");
        fs::create_dir_all(&repo).unwrap();
        git(&repo, &["init", "-q"]).await;
        for (file, text) in [("Makefile", "m\n"), ("Kconfig", "k\n"), ("a.c", "one\n")] {
            fs::write(repo.join(file), text).unwrap();
        }
        git(&repo, &["add", "."]).await;
        git(&repo, &["commit", "-qm", "first"]).await;
        fs::write(repo.join("a.c"), "two\n").unwrap();
        git(&repo, &["commit", "-qam", "second"]).await;
        fs::write(repo.join("a.c"), "dirty\n").unwrap();
        fs::write(repo.join("staged.c"), "staged\n").unwrap();
        git(&repo, &["add", "staged.c"]).await;
        repo
    }

    #[tokio::test]
    async fn a_dirty_checkout_is_neither_used_nor_touched() {
        let place = tempfile::tempdir().unwrap();
        let repo = repository(place.path()).await;
        let cache = Cache::inside(&place.path().join("cache"));
        let before = (
            fs::read(repo.join(".git/index")).unwrap(),
            git(&repo, &["status", "--porcelain"]).await,
            git(&repo, &["for-each-ref"]).await,
        );
        let head = checkout(repo.to_str().unwrap(), "HEAD", &cache, &tools(), &|_| {})
            .await
            .unwrap();
        assert_eq!(head.read("a.c").unwrap().unwrap(), b"two\n");
        assert_eq!(head.read("staged.c").unwrap(), None);
        let id = head.id.clone();
        drop(head);
        let first = checkout(repo.to_str().unwrap(), "HEAD~1", &cache, &tools(), &|_| {})
            .await
            .unwrap();
        assert_eq!(first.read("a.c").unwrap().unwrap(), b"one\n");
        assert_eq!(first.changed_since(&id).await.unwrap(), ["a.c"]);
        let after = (
            fs::read(repo.join(".git/index")).unwrap(),
            git(&repo, &["status", "--porcelain"]).await,
            git(&repo, &["for-each-ref"]).await,
        );
        assert_eq!(before, after);
    }

    #[tokio::test]
    async fn a_worktree_and_a_wrong_reference() {
        let place = tempfile::tempdir().unwrap();
        let repo = repository(place.path()).await;
        let worktree = place.path().join("wt");
        git(
            &repo,
            &[
                "worktree",
                "add",
                "-q",
                worktree.to_str().unwrap(),
                "HEAD~1",
            ],
        )
        .await;
        let cache = Cache::inside(&place.path().join("cache"));
        let tree = checkout(
            worktree.to_str().unwrap(),
            "HEAD",
            &cache,
            &tools(),
            &|_| {},
        )
        .await
        .unwrap();
        assert_eq!(tree.read("a.c").unwrap().unwrap(), b"one\n");
        drop(tree);
        let wrong = checkout(repo.to_str().unwrap(), "v9.9", &cache, &tools(), &|_| {}).await;
        assert!(matches!(
            wrong,
            Err(SourceError::Git(GitError::NoCommit { .. }))
        ));
    }

    #[tokio::test]
    async fn a_range_becomes_patches_in_order() {
        let place = tempfile::tempdir().unwrap();
        let repo = repository(place.path()).await;
        let patches = patches_of_range(&repo, "HEAD~1..HEAD", &tools())
            .await
            .unwrap();
        assert_eq!(patches.len(), 1);
        assert!(String::from_utf8_lossy(&patches[0].1).contains("\n-one\n+two\n"));
        let empty = patches_of_range(&repo, "HEAD..HEAD", &tools()).await;
        assert!(matches!(empty, Err(GitError::EmptyRange { .. })));
    }
}
