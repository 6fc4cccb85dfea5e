//! The host: what it is, what it can do, and how busy it was.
//!
//! Every reader takes the folder in which `proc` and `sys` lie, so that a
//! folder of files can stand for another host.

pub mod affinity;
mod identity;
mod inventory;
mod leases;
mod load;
mod pins;
mod scratch;
mod tuning;

pub use identity::Identity;
pub use inventory::{CoreKind, HostCpu, HostNode, Inventory, InventoryError};
pub use leases::{Lease, LeaseError, Leases};
pub use load::{Window, WindowEnd};
pub use pins::{PinError, PinMode, PinPlan, plan};
pub use scratch::Scratch;
pub use tuning::Tuning;
