//! Results folders: what is in them and how it is kept.

mod folder;
pub mod lock;
pub mod record;

pub use folder::{CampaignMeta, KernelMeta, Results, ResultsFolder, StoreError, load, read_meta};
pub(crate) use folder::{read_record, run_name, save_meta, sync_folder, write_durably};
