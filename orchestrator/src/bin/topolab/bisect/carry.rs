//! Carries a bisection out: measures, confirms, and writes what came of it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use topolab::{
    bisect::{
        DriveError, Place, Ready, Run, Tree, Verdict,
        account::{Account, Confirmation, suspects},
        confirm::{Pair, confirm},
        drive,
        git::{CommitFacts, Repository, short},
        git_log,
        guests::{GuestLab, next_index},
        html,
        judge::Judge,
        script::ScriptLab,
        session::{Session, Target},
        text,
    },
    campaign::Single,
    event::Event,
    kernel::BuildEvent,
    run::Cancel,
};

use super::{BisectArgs, plan, plan::Subject, words};
use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    interrupt, lab,
    terminal::Terminal,
};

/// Where trees are measured.
enum Bench<'a> {
    Script(ScriptLab),
    Guests(Box<GuestLab<'a>>),
}

impl Bench<'_> {
    async fn ready(&self, tree: &Tree) -> Ready {
        match self {
            // A script is run in a checkout; there is nothing to build before.
            Self::Script(_) => Ready::Yes { image: None },
            Self::Guests(lab) => lab.ready(tree).await,
        }
    }

    async fn run(&self, tree: &Tree, number: u32) -> Run {
        match self {
            Self::Script(lab) => lab.run(tree, number).await,
            Self::Guests(lab) => lab.run(tree, number).await,
        }
    }
}

/// Searches, from the arguments to the exit code.
pub fn run(args: &BisectArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let runtime = lab::runtime()?;
    let started = Instant::now();
    runtime.block_on(async {
        let cancel = interrupt::watch(terminal)?;
        let (mut session, subject) = begin(args, &folders, terminal).await?;
        terminal.say(format_args!("bisection: {}", session.folder().display()));
        search(
            args,
            &folders,
            &mut session,
            subject.as_ref(),
            &cancel,
            started,
            terminal,
        )
        .await
    })
}

async fn begin(
    args: &BisectArgs,
    folders: &Folders,
    terminal: Terminal,
) -> Result<(Session, Option<Subject>), Failure> {
    if let Some(folder) = &args.resume {
        let mut session = Session::open(folder).map_err(|e| words::session(&e))?;
        if let Some(runs) = args.max_runs {
            session.allow(runs);
        }
        let subject = plan::again(session.plan()).await?;
        return Ok((session, subject));
    }
    let planned = plan::make(args, terminal).await?;
    let name = planned
        .subject
        .as_ref()
        .map_or("script", |s| s.prepared.experiment.name.value.as_str());
    let folder = args.output.clone().unwrap_or_else(|| {
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        folders.results.join(format!("bisect-{name}-{stamp}"))
    });
    let session = Session::create(&folder, planned.plan).map_err(|e| words::session(&e))?;
    Ok((session, planned.subject))
}

async fn search(
    args: &BisectArgs,
    folders: &Folders,
    session: &mut Session,
    subject: Option<&Subject>,
    cancel: &Cancel,
    started: Instant,
    terminal: Terminal,
) -> Result<ExitCode, Failure> {
    let repository = match &session.plan().target {
        Target::Git { repo, .. } => Some(
            Repository::open(repo, &lab::tools().git)
                .await
                .map_err(|e| words::range(&e))?,
        ),
        _ => None,
    };
    let builder = lab::builder(folders);
    let build_words = move |event: BuildEvent| build_words(&event, terminal);
    let runs = absolute(&session.folder().join("runs"));
    let bench = match (&session.plan().judge, subject) {
        (Judge::Script { command }, _) => {
            let repository = repository.as_ref().expect("a script is searched over git");
            let checkout = session.folder().join("tree");
            Bench::Script(ScriptLab {
                repository: repository
                    .copy(&checkout)
                    .await
                    .map_err(|e| Failure::of(Kind::Lab, &e))?,
                command: command.clone(),
                count: Cell::new(next_index(&runs)),
                runs,
            })
        }
        (judge, Some(subject)) => {
            let copy = match &repository {
                Some(repository) => Some(shared_copy(repository, folders).await?),
                None => None,
            };
            let single = if judge.needs_runs() {
                let bench = args.bench.or(&subject.prepared.experiment.bench);
                let lab = lab::open(folders, &bench).await?;
                let note = |event: Event| {
                    if let Event::Note { text } = event {
                        terminal.say(format_args!("note: {text}"));
                    }
                };
                let single = Single::open(
                    &subject.prepared,
                    &subject.cell,
                    &lab,
                    &folders.cache,
                    &note,
                )
                .await;
                Some(single.map_err(|e| Failure::of(Kind::Lab, &e).hint("topolab doctor"))?)
            } else {
                None
            };
            Bench::Guests(Box::new(GuestLab {
                trees: plan::trees(&session.plan().target, subject, copy),
                builder: &builder,
                single,
                cancel: cancel.clone(),
                tell: &build_words,
                built: RefCell::new(HashMap::new()),
                count: Cell::new(next_index(&runs)),
                runs,
                environment: RefCell::new(None),
                untrusted: RefCell::new(BTreeMap::new()),
            }))
        }
        (_, None) => return Err(Failure::request("this bisection names no experiment")),
    };
    let ready = async |tree: &Tree| bench.ready(tree).await;
    let run = async |tree: &Tree, number: u32| bench.run(tree, number).await;
    let mut tell = |progress| words::progress(&progress, args.json, terminal);
    let folder = session.folder().to_owned();
    let failed = |error: DriveError| words::drive(&error, &folder);
    let verdict = drive(session, &ready, &run, cancel, &mut tell)
        .await
        .map_err(failed)?;
    let mut confirmations = Vec::new();
    if args.confirm {
        for pair in pairs(session, &verdict, repository.as_ref(), folders, terminal).await? {
            match pair {
                Ok(pair) => {
                    terminal.say(format_args!("confirming: {}", pair.what));
                    let place = folder.join(format!("confirm-{}", confirmations.len() + 1));
                    let confirmed = confirm(
                        &place,
                        session.plan(),
                        pair,
                        &ready,
                        &run,
                        cancel,
                        &mut tell,
                    )
                    .await;
                    confirmations.push(confirmed.map_err(failed)?);
                }
                Err(not_made) => confirmations.push(not_made),
            }
        }
    }
    let mut account = account(session, &verdict, repository.as_ref()).await?;
    account.confirmation = confirmations;
    if let Bench::Guests(guests) = &bench {
        account.environment = guests.environment.borrow().clone();
        if let Judge::Metric { metric, .. } = &session.plan().judge {
            let untrusted = guests.untrusted.borrow();
            account.caution = untrusted.get(metric).map(|reason| {
                format!("{metric} depends on how fast the bench is, and this bench cannot carry it: {reason}")
            });
        }
    }
    if args.resume.is_none() {
        account.spent.wall_seconds = Some(started.elapsed().as_secs_f64());
    }
    finish(args, session, &verdict, &account, terminal)
}

/// The copy of the user's repository that kernels are built from.
async fn shared_copy(repository: &Repository, folders: &Folders) -> Result<PathBuf, Failure> {
    let folder = repository
        .folder_for_copy(&folders.cache)
        .await
        .map_err(|e| words::range(&e))?;
    let copy = repository
        .copy(&folder)
        .await
        .map_err(|e| Failure::of(Kind::Lab, &e))?;
    Ok(copy.path().to_owned())
}

/// The fresh comparisons that can be made, and why others cannot.
async fn pairs(
    session: &Session,
    verdict: &Verdict,
    repository: Option<&Repository>,
    folders: &Folders,
    terminal: Terminal,
) -> Result<Vec<Result<Pair, Confirmation>>, Failure> {
    let Verdict::Found { culprit } = verdict else {
        terminal.say("nothing to confirm: no single culprit was found");
        return Ok(Vec::new());
    };
    let lab_failed = |error: &dyn std::fmt::Display| Failure::lab(error);
    match (&session.plan().target, repository) {
        (Target::Git { range, .. }, Some(repository)) => {
            let id = range.history.id(culprit.candidate).to_owned();
            let parents = repository
                .parents(&id)
                .await
                .map_err(|e| words::range(&e))?;
            let parent = parents
                .into_iter()
                .next()
                .unwrap_or_else(|| range.good.clone());
            let against_parent = Pair {
                what: format!("{} against its parent {}", short(&id), short(&parent)),
                good: parent,
                bad: id.clone(),
            };
            let what = format!("the bad end against itself with {} taken back", short(&id));
            let shared = repository
                .folder_for_copy(&folders.cache)
                .await
                .map_err(|e| words::range(&e))?;
            let shared = repository.copy(&shared).await.map_err(|e| lab_failed(&e))?;
            let revert = match shared
                .reverted(&range.bad, &id)
                .await
                .map_err(|e| lab_failed(&e))?
            {
                Some(reverted) => Ok(Pair {
                    what,
                    good: reverted,
                    bad: range.bad.clone(),
                }),
                None => Err(Confirmation {
                    what,
                    agrees: None,
                    detail: "the revert does not apply on top of the bad end".to_owned(),
                    runs: 0,
                    build_seconds: 0.0,
                    run_seconds: 0.0,
                }),
            };
            Ok(vec![Ok(against_parent), revert])
        }
        (Target::Series { .. }, _) => {
            let n = culprit.candidate + 1;
            let before = if n == 1 {
                "base".to_owned()
            } else {
                format!("1..{}", n - 1)
            };
            Ok(vec![
                Ok(Pair {
                    what: format!("patches 1..{n} against {before}"),
                    good: before,
                    bad: format!("1..{n}"),
                }),
                Ok(Pair {
                    what: format!("the whole series against itself without patch {n}"),
                    good: format!("all-{n}"),
                    bad: "all".to_owned(),
                }),
            ])
        }
        _ => Ok(Vec::new()),
    }
}

async fn account(
    session: &Session,
    verdict: &Verdict,
    repository: Option<&Repository>,
) -> Result<Account, Failure> {
    let target = &session.plan().target;
    let named = suspects(verdict);
    let (subjects, facts) = match (target, repository) {
        (Target::Git { range, .. }, Some(repository)) => {
            let places = session.places();
            let ids: Vec<String> = places.iter().map(|place| target.tree(*place)).collect();
            let borrowed: Vec<&str> = ids.iter().map(String::as_str).collect();
            let told = repository
                .subjects(&borrowed)
                .await
                .map_err(|e| words::range(&e))?;
            let subjects: HashMap<Place, String> = places.into_iter().zip(told).collect();
            let mut facts = Vec::new();
            for suspect in named.iter().take(MOST_NAMED) {
                let id = range.history.id(suspect.candidate);
                facts.push(repository.facts(id).await.map_err(|e| words::range(&e))?);
            }
            (subjects, facts)
        }
        (Target::Series { patches, .. }, _) => {
            let at = |candidate: u32| patches.get(candidate as usize);
            let subjects = session
                .places()
                .into_iter()
                .map(|place| match place {
                    Place::At(c) => (place, at(c).map(|p| p.subject.clone()).unwrap_or_default()),
                    _ => (place, String::new()),
                })
                .collect();
            let facts = named
                .iter()
                .filter_map(|suspect| {
                    let patch = at(suspect.candidate)?;
                    Some(CommitFacts {
                        id: format!("patch {}", suspect.candidate + 1),
                        subject: patch.subject.clone(),
                        author: patch.author.clone().unwrap_or_default(),
                        date: String::new(),
                        diffstat: patch.name.clone(),
                    })
                })
                .collect();
            (subjects, facts)
        }
        _ => (HashMap::new(), Vec::new()),
    };
    let subject = |place: Place| subjects.get(&place).cloned().unwrap_or_default();
    Ok(Account::of(session, Some(verdict), &subject, &facts))
}

/// Suspects that are looked up in git; more are not read by anyone.
const MOST_NAMED: usize = 50;

fn finish(
    args: &BisectArgs,
    session: &Session,
    verdict: &Verdict,
    account: &Account,
    terminal: Terminal,
) -> Result<ExitCode, Failure> {
    let folder = session.folder();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text)
            .map_err(|error| Failure::lab(format_args!("{}: {error}", folder.join(name).display())))
    };
    let mail = text::mail(account);
    write(
        "report.txt",
        &format!("{}\n{mail}", text::render(account, 110)),
    )?;
    write("report.html", &html::page(account).map_err(Failure::lab)?)?;
    if let Target::Git { request, range, .. } = &session.plan().target {
        let subject = |id: &str| {
            account
                .steps
                .iter()
                .find(|step| step.tree == id)
                .map(|step| step.subject.clone())
                .or_else(|| {
                    account
                        .suspects
                        .iter()
                        .find(|s| s.facts.id == id)
                        .map(|s| s.facts.subject.clone())
                })
                .unwrap_or_default()
        };
        write(
            "bisect.log",
            &git_log(session.engine(), request, range, Some(verdict), &subject),
        )?;
    }
    if args.json {
        terminal.json(account);
    } else {
        terminal.answer(text::render(account, crate::compare::width(None)).trim_end());
        if !mail.is_empty() {
            terminal.answer(format_args!("\n-- for a mail --\n{}", mail.trim_end()));
        }
        terminal.say(format_args!(
            "report: {}",
            folder.join("report.html").display()
        ));
    }
    match verdict {
        Verdict::Aborted { .. } => {
            terminal.say(format_args!(
                "next: topolab bisect --resume {}",
                folder.display()
            ));
        }
        Verdict::Undecided { .. } => {
            terminal.say(format_args!(
                "next: topolab bisect --resume {} --max-runs {}",
                folder.display(),
                session.plan().rules.max_runs.saturating_mul(2)
            ));
        }
        Verdict::EndsSwapped { .. } => {
            terminal.say("next: exchange --good and --bad, or search a change for the better with --any-direction");
        }
        _ => {}
    }
    Ok(words::exit_code(verdict))
}

fn build_words(event: &BuildEvent, terminal: Terminal) {
    match event {
        BuildEvent::Fetching { what } => terminal.say(format_args!("  fetching {what}")),
        BuildEvent::Waiting { lock } => {
            terminal.say(format_args!(
                "  waiting for another build ({})",
                lock.display()
            ));
        }
        BuildEvent::Compiling {
            done,
            expected: Some(expected),
            object,
            ..
        } => {
            terminal.detail(format_args!("  compiled {done} of {expected}: {object}"));
        }
        _ => {}
    }
}

/// Runs are started in folders of their own, so theirs must be named in full.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
