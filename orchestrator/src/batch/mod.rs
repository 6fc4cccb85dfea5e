//! Campaigns on a batch system: past one machine the same runs become tasks of
//! Slurm, and their results land in the same kind of folder.
//!
//! The pure part cuts a campaign into [`block`]s, packs them into arrays
//! ([`plan`]), writes scripts ([`script`]), judges a cluster ([`check`]) and what
//! became of tasks ([`decide`]). [`slurm`] calls Slurm's clients. [`submit`] and [`watch`]
//! work for the user, [`build`] and [`execute`] inside jobs. All of them meet only in the results
//! folder ([`desk`], [`publish`]): there is no server, and each may die at any time.
//!
//! Another batch system takes the place of [`slurm`] and [`script`] alone.

pub mod block;
pub mod build;
pub mod check;
pub mod decide;
pub mod desk;
pub mod execute;
pub mod plan;
pub mod publish;
pub mod script;
#[cfg(test)]
mod simulation;
pub mod slurm;
pub mod submit;
pub mod tally;
pub mod unit;
pub mod watch;
