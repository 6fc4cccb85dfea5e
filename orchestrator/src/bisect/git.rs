//! The candidates of a git range, and what git knows of a commit.
//!
//! git lists the candidates and their parents (`rev-list`), so merges,
//! `--first-parent` and paths mean what they mean to git. The user's repository is
//! only read. What needs a checkout or a new commit happens in a repository of
//! our own that borrows the user's objects.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::history::{History, HistoryError};
use crate::kernel::{ToolError, git_command, output};

/// A repository, as the user has it. Nothing in it is changed.
#[derive(Debug, Clone)]
pub struct Repository {
    path: PathBuf,
    git: PathBuf,
}

/// What to search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRequest {
    /// The good end.
    pub good: String,
    /// The bad end.
    pub bad: String,
    /// Follow only first parents: the culprit may be a merge as a whole.
    pub first_parent: bool,
    /// Only commits that touch these.
    pub paths: Vec<String>,
    /// Commits (`REF`) or ranges (`A..B`) that are not measured.
    pub skip: Vec<String>,
}

/// A range that can be searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Full id of the good end.
    pub good: String,
    /// Full id of the bad end.
    pub bad: String,
    /// The candidates, by full id.
    pub history: History,
    /// Candidates that are not measured, by index.
    pub skipped: Vec<u32>,
}

/// What git says of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitFacts {
    /// Full id.
    pub id: String,
    /// First line of the message.
    pub subject: String,
    /// Name and address of the author.
    pub author: String,
    /// When it was written, as RFC 3339 with the author's own offset.
    pub date: String,
    /// `git diff --stat` against the first parent.
    pub diffstat: String,
}

/// Which end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The good one.
    Good,
    /// The bad one.
    Bad,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Bad => "bad",
        })
    }
}

/// A range that cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// No repository there.
    #[error("{path} is not in a git repository")]
    NotARepository {
        /// Where it was looked for.
        path: PathBuf,
        /// What git said.
        source: ToolError,
    },
    /// A name git does not know.
    #[error("the {end} end '{reference}' names no commit in {repo}")]
    Unknown {
        /// Which end.
        end: End,
        /// What was written.
        reference: String,
        /// The repository.
        repo: PathBuf,
        /// Whether the repository holds only a part of its history.
        shallow: bool,
    },
    /// Both ends are one commit.
    #[error("the good end '{good}' and the bad end '{bad}' are the same commit {id}")]
    Same {
        /// As written.
        good: String,
        /// As written.
        bad: String,
        /// The commit, abbreviated.
        id: String,
    },
    /// The bad end is older than the good one.
    #[error("the bad end '{bad}' is an ancestor of the good end '{good}': the ends are swapped")]
    Swapped {
        /// As written.
        good: String,
        /// As written.
        bad: String,
    },
    /// Neither contains the other.
    #[error(
        "the good end '{good}' is not an ancestor of the bad end '{bad}': they part at {base} ({subject})"
    )]
    Apart {
        /// As written.
        good: String,
        /// As written.
        bad: String,
        /// Where their histories part, abbreviated.
        base: String,
        /// Its subject.
        subject: String,
    },
    /// The ends share no history, as far as the repository knows.
    #[error("the good end '{good}' and the bad end '{bad}' share no history in {repo}")]
    Unrelated {
        /// As written.
        good: String,
        /// As written.
        bad: String,
        /// The repository.
        repo: PathBuf,
        /// Whether the repository holds only a part of its history.
        shallow: bool,
    },
    /// A name or range to skip that git does not know.
    #[error("'{reference}' to be skipped names no commits in {repo}")]
    UnknownSkip {
        /// What was written.
        reference: String,
        /// The repository.
        repo: PathBuf,
    },
    /// No commit touches the paths.
    #[error("no commit between '{good}' and '{bad}' touches {}", .paths.join(", "))]
    NothingTouches {
        /// As written.
        good: String,
        /// As written.
        bad: String,
        /// The paths.
        paths: Vec<String>,
    },
    /// git's list is no history.
    #[error("git's list of commits cannot be used")]
    History(#[from] HistoryError),
    /// git failed.
    #[error("git failed")]
    Git(#[from] ToolError),
}

impl Repository {
    /// The repository that holds `path`.
    ///
    /// # Errors
    /// There is none.
    pub async fn open(path: &Path, git: &Path) -> Result<Self, RangeError> {
        let repository = Self {
            path: path.to_owned(),
            git: git.to_owned(),
        };
        match repository.say(&["rev-parse", "--git-dir"]).await {
            Ok(_) => Ok(repository),
            Err(source @ ToolError::NotInstalled { .. }) => Err(source.into()),
            Err(source) => Err(RangeError::NotARepository {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn say(&self, arguments: &[&str]) -> Result<String, ToolError> {
        let said = output(
            git_command(&self.git)
                .arg("-C")
                .arg(&self.path)
                // Not even the index is refreshed.
                .arg("--no-optional-locks")
                .args(arguments),
        )
        .await?;
        Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
    }

    /// Whether git answers with success.
    async fn holds(&self, arguments: &[&str]) -> Result<bool, ToolError> {
        match self.say(arguments).await {
            Ok(_) => Ok(true),
            Err(ToolError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn is_shallow(&self) -> Result<bool, ToolError> {
        Ok(self.say(&["rev-parse", "--is-shallow-repository"]).await? == "true")
    }

    /// The full id a name stands for.
    async fn commit(&self, reference: &str) -> Result<Option<String>, ToolError> {
        let name = format!("{reference}^{{commit}}");
        match self
            .say(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &name,
            ])
            .await
        {
            Ok(id) => Ok(Some(id)),
            Err(ToolError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The full id of an end.
    ///
    /// # Errors
    /// git knows no such commit.
    pub async fn end(&self, end: End, reference: &str) -> Result<String, RangeError> {
        match self.commit(reference).await? {
            Some(id) => Ok(id),
            None => Err(RangeError::Unknown {
                end,
                reference: reference.to_owned(),
                repo: self.path.clone(),
                shallow: self.is_shallow().await?,
            }),
        }
    }

    /// Checks the ends and lists the candidates between them.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub async fn range(&self, request: &RangeRequest) -> Result<Range, RangeError> {
        let good = self.end(End::Good, &request.good).await?;
        let bad = self.end(End::Bad, &request.bad).await?;
        self.check_order(request, &good, &bad).await?;
        let not_good = format!("^{good}");
        let mut arguments = vec!["rev-list", "--topo-order", "--reverse", "--parents"];
        if request.first_parent {
            arguments.push("--first-parent");
        }
        arguments.extend([bad.as_str(), not_good.as_str(), "--"]);
        arguments.extend(request.paths.iter().map(String::as_str));
        let listed: Vec<(String, Vec<String>)> = self
            .say(&arguments)
            .await?
            .lines()
            .filter_map(|line| {
                let mut ids = line.split(' ').map(str::to_owned);
                Some((ids.next()?, ids.collect()))
            })
            .collect();
        if listed.is_empty() {
            return Err(RangeError::NothingTouches {
                good: request.good.clone(),
                bad: request.bad.clone(),
                paths: request.paths.clone(),
            });
        }
        let history = History::with_parents(listed)?;
        let skipped = self.skipped(request, &history).await?;
        Ok(Range {
            good,
            bad,
            history,
            skipped,
        })
    }

    async fn check_order(
        &self,
        request: &RangeRequest,
        good: &str,
        bad: &str,
    ) -> Result<(), RangeError> {
        let (as_good, as_bad) = (request.good.clone(), request.bad.clone());
        if good == bad {
            return Err(RangeError::Same {
                good: as_good,
                bad: as_bad,
                id: short(good).to_owned(),
            });
        }
        if self
            .holds(&["merge-base", "--is-ancestor", good, bad])
            .await?
        {
            return Ok(());
        }
        if self
            .holds(&["merge-base", "--is-ancestor", bad, good])
            .await?
        {
            return Err(RangeError::Swapped {
                good: as_good,
                bad: as_bad,
            });
        }
        match self.say(&["merge-base", good, bad]).await {
            Ok(base) => {
                let base = base.lines().next().unwrap_or_default().to_owned();
                let subject = self.say(&["log", "-1", "--format=%s", &base]).await?;
                Err(RangeError::Apart {
                    good: as_good,
                    bad: as_bad,
                    base: short(&base).to_owned(),
                    subject,
                })
            }
            Err(ToolError::Failed { .. }) => Err(RangeError::Unrelated {
                good: as_good,
                bad: as_bad,
                repo: self.path.clone(),
                shallow: self.is_shallow().await?,
            }),
            Err(error) => Err(error.into()),
        }
    }

    async fn skipped(
        &self,
        request: &RangeRequest,
        history: &History,
    ) -> Result<Vec<u32>, RangeError> {
        let mut skipped = Vec::new();
        for reference in &request.skip {
            let unknown = || RangeError::UnknownSkip {
                reference: reference.clone(),
                repo: self.path.clone(),
            };
            let ids = if reference.contains("..") {
                match self.say(&["rev-list", "--end-of-options", reference]).await {
                    Ok(list) => list.lines().map(str::to_owned).collect(),
                    Err(ToolError::Failed { .. }) => return Err(unknown()),
                    Err(error) => return Err(error.into()),
                }
            } else {
                vec![self.commit(reference).await?.ok_or_else(unknown)?]
            };
            skipped.extend(ids.iter().filter_map(|id| history.find(id)));
        }
        skipped.sort_unstable();
        skipped.dedup();
        Ok(skipped)
    }

    /// Files with changes that are in no commit, and so in nothing that is
    /// measured.
    ///
    /// # Errors
    /// git failed.
    pub async fn uncommitted(&self) -> Result<Vec<String>, RangeError> {
        if self.say(&["rev-parse", "--is-inside-work-tree"]).await? != "true" {
            return Ok(Vec::new());
        }
        let listed = self
            .say(&["status", "--porcelain", "--untracked-files=no"])
            .await?;
        Ok(listed
            .lines()
            .filter_map(|line| line.get(3..).map(str::to_owned))
            .collect())
    }

    /// What git says of a commit.
    ///
    /// # Errors
    /// git failed.
    pub async fn facts(&self, id: &str) -> Result<CommitFacts, RangeError> {
        let told = self
            .say(&["log", "-1", "--format=%H%n%s%n%an <%ae>%n%aI", id, "--"])
            .await?;
        let mut lines = told.lines().map(str::to_owned);
        let mut next = || lines.next().unwrap_or_default();
        let (id, subject, author, date) = (next(), next(), next(), next());
        let diffstat = self
            .say(&[
                "show",
                "-m",
                "--first-parent",
                "--stat=72",
                "--format=",
                &id,
                "--",
            ])
            .await?;
        Ok(CommitFacts {
            id,
            subject,
            author,
            date,
            diffstat,
        })
    }

    /// Subjects of many commits, in the order asked.
    ///
    /// # Errors
    /// git failed.
    pub async fn subjects(&self, ids: &[&str]) -> Result<Vec<String>, RangeError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = vec!["log", "--no-walk=unsorted", "--format=%s"];
        arguments.extend(ids);
        arguments.push("--");
        Ok(self
            .say(&arguments)
            .await?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// The parents of a commit, full ids.
    ///
    /// # Errors
    /// git failed.
    pub async fn parents(&self, id: &str) -> Result<Vec<String>, RangeError> {
        let listed = self.say(&["rev-list", "--parents", "-1", id, "--"]).await?;
        Ok(listed.split(' ').skip(1).map(str::to_owned).collect())
    }

    /// A folder below `cache` for [`Repository::copy`], the same for the same
    /// repository whatever worktree of it is asked.
    ///
    /// # Errors
    /// git failed.
    pub async fn folder_for_copy(&self, cache: &Path) -> Result<PathBuf, RangeError> {
        let common = self
            .say(&["rev-parse", "--path-format=absolute", "--git-common-dir"])
            .await?;
        let digest = Sha256::digest(common.as_bytes());
        let name: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(cache.join("bisect").join(name))
    }

    /// A repository of our own in `folder` that borrows this one's objects. Made
    /// on first use; used again as it is later.
    ///
    /// # Errors
    /// git or the file system failed.
    pub async fn copy(&self, folder: &Path) -> Result<OwnRepository, CopyError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| CopyError::Io { path, source }
        };
        let objects = self
            .say(&[
                "rev-parse",
                "--path-format=absolute",
                "--git-path",
                "objects",
            ])
            .await?;
        fs::create_dir_all(folder).map_err(io(folder))?;
        if !folder.join(".git/HEAD").is_file() {
            output(git_command(&self.git).args(["init", "--quiet"]).arg(folder)).await?;
        }
        let alternates = folder.join(".git/objects/info/alternates");
        fs::write(&alternates, format!("{objects}\n")).map_err(io(&alternates))?;
        Ok(OwnRepository {
            inner: Self {
                path: folder.to_owned(),
                git: self.git.clone(),
            },
        })
    }
}

/// The first twelve characters of an id: what kernel mails quote.
pub fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// A repository of our own.
#[derive(Debug, Clone)]
pub struct OwnRepository {
    inner: Repository,
}

/// A repository of our own that cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// git failed.
    #[error("git failed")]
    Git(#[from] ToolError),
    /// A file or folder.
    #[error("{path} cannot be written")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OwnRepository {
    /// Its folder, which is also its checkout.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Checks a commit out. Files git does not know stay, as under `git bisect`.
    ///
    /// # Errors
    /// git failed.
    pub async fn checkout(&self, id: &str) -> Result<(), CopyError> {
        self.inner
            .say(&["checkout", "--quiet", "--force", "--detach", id, "--"])
            .await?;
        Ok(())
    }

    /// A commit that is `tip` with `culprit` taken back; nothing when the revert
    /// does not apply. Needs no checkout: a kernel's takes minutes on a slow disk.
    ///
    /// # Errors
    /// git or the file system failed otherwise.
    pub async fn reverted(&self, tip: &str, culprit: &str) -> Result<Option<String>, CopyError> {
        let scratch = tempfile::Builder::new()
            .prefix("revert-")
            .tempdir_in(self.path())
            .map_err(|source| CopyError::Io {
                path: self.path().to_owned(),
                source,
            })?;
        let index = scratch.path().join("index");
        let git = async |arguments: &[&str]| -> Result<Vec<u8>, ToolError> {
            let mut command = git_command(&self.inner.git);
            command.arg("-C").arg(self.path()).args(arguments);
            command.env("GIT_INDEX_FILE", &index);
            for who in ["AUTHOR", "COMMITTER"] {
                command.env(format!("GIT_{who}_NAME"), "topolab");
                command.env(format!("GIT_{who}_EMAIL"), "topolab@localhost");
            }
            output(&mut command).await
        };
        let parent = format!("{culprit}^1");
        let diff = git(&[
            "diff-tree",
            "-p",
            "--binary",
            "--full-index",
            &parent,
            culprit,
            "--",
        ])
        .await?;
        let patch = scratch.path().join("patch");
        fs::write(&patch, diff).map_err(|source| CopyError::Io {
            path: patch.clone(),
            source,
        })?;
        git(&["read-tree", tip]).await?;
        let patch = patch.display().to_string();
        match git(&["apply", "--cached", "--reverse", "--3way", &patch]).await {
            Ok(_) => {}
            Err(ToolError::Failed { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let line = |said: Vec<u8>| String::from_utf8_lossy(&said).trim_end().to_owned();
        let tree = line(git(&["write-tree"]).await?);
        let message = format!("Revert {culprit}");
        let commit = git(&["commit-tree", &tree, "-p", tip, "-m", &message]).await?;
        Ok(Some(line(commit)))
    }
}
