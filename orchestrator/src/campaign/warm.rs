//! Warm campaigns: the guests that runs are restored from.
//!
//! Rounds take turns with the boots, so that each boot meets every round's
//! weather. Cells that differ only in what is done after the boot (settings,
//! workload) share their boots.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
};

use tokio::sync::Mutex;

use super::Prepared;
use crate::{
    outcome::Outcome,
    plan::Boot,
    run::{
        self, Bench, RunResult, RunUnit, Session,
        warm::{self, SavedGuest},
    },
};

/// What a record's environment says of a run that was restored.
const START: (&str, &str) = ("start", "warm");
/// Folder of saved guests in a results folder, while the campaign lasts.
const FOLDER: &str = "boots";
/// Folder in a run's own for the boot that was made for it.
const OWN_BOOT: &str = "boot";

/// A saved guest, or none yet. Whoever holds it may boot one.
type Slot = Rc<Mutex<Option<SavedGuest>>>;

/// How the runs of a campaign are started.
#[derive(Debug)]
pub(super) struct Starter {
    folder: PathBuf,
    /// Boots of each kernel, machine and command line; 0: every run boots.
    boots: u32,
    /// By key and number.
    slots: RefCell<BTreeMap<(String, u32), Slot>>,
}

impl Starter {
    /// As the experiment says, with saved guests below a results folder.
    pub fn new(prepared: &Prepared, results: &Path) -> Self {
        let boots = match prepared.experiment.boot {
            Boot::Fresh => 0,
            Boot::Warm => prepared.experiment.boots.max(1),
        };
        Self {
            folder: results.join(FOLDER),
            boots,
            slots: RefCell::default(),
        }
    }

    /// Runs `unit` in its way. Gives the name of the boot too, where the run shares one.
    pub async fn execute(
        &self,
        unit: &RunUnit,
        bench: &Bench,
        round: u32,
        folder: &Path,
        session: Session<'_>,
    ) -> (Option<String>, RunResult) {
        if self.boots == 0 {
            return (None, run::execute(unit, bench, folder, session).await);
        }
        let number = round % self.boots;
        let key = warm::key(unit, bench);
        let file = self.folder.join(format!("{}-{number}", &key[..16]));
        let slot = {
            let mut slots = self.slots.borrow_mut();
            Rc::clone(slots.entry((key.clone(), number)).or_default())
        };
        let saving = Session {
            events: &mut *session.events,
            cancel: session.cancel.clone(),
            typed: None,
        };
        // Held while the guest boots: others that need it wait for it.
        let saved = match Self::saved(&slot, &key, &file, unit, bench, folder, saving).await {
            Ok(saved) => saved,
            Err(result) => return (None, *result),
        };
        let mut result = warm::execute(unit, bench, &saved, folder, session).await;
        let (name, value) = START;
        result.environment.more.insert(name.into(), value.into());
        if matches!(result.outcome, Outcome::LabFailed { .. }) {
            // Perhaps the saved guest's fault: the next try boots another.
            slot.lock().await.take();
            let _ = fs::remove_file(&file);
        }
        (Some(saved.sha256[..16].into()), result)
    }

    async fn saved(
        slot: &Slot,
        key: &str,
        file: &Path,
        unit: &RunUnit,
        bench: &Bench,
        folder: &Path,
        session: Session<'_>,
    ) -> Result<SavedGuest, Box<RunResult>> {
        let mut slot = slot.lock().await;
        if let Some(saved) = &*slot {
            return Ok(saved.clone());
        }
        // Of an earlier part of this campaign. One that is damaged is made anew.
        let earlier = SavedGuest::load(file, key).ok().flatten();
        let saved = match earlier {
            Some(saved) => saved,
            None => warm::save(unit, bench, &folder.join(OWN_BOOT), file, session).await?,
        };
        *slot = Some(saved.clone());
        Ok(saved)
    }

    /// Removes the saved guests: the campaign has ended.
    ///
    /// # Errors
    /// The file system said no.
    pub fn tidy(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
