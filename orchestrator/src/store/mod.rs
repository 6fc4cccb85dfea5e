//! Results folders: what is in them and how it is kept.

mod folder;
pub mod lock;
pub mod record;

pub(crate) use folder::write_durably;
pub use folder::{CampaignMeta, KernelMeta, Results, ResultsFolder, StoreError, load};
