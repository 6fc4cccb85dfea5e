//! Builds the kernels of a campaign.

use std::collections::BTreeMap;

use super::{CampaignError, Prepared, chain};
use crate::{
    event::Event,
    kernel::{self, BuildEvent, Builder, BuiltKernel, KernelError, Variant},
    store::KernelMeta,
};

/// A campaign's kernels by their name in cells.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// What was built.
    pub built: BTreeMap<String, BuiltKernel>,
    /// Every kernel of the campaign, with its cost or why there is none.
    pub meta: Vec<KernelMeta>,
}

/// Builds every kernel, one after the other, in the order in which neighbours
/// recompile least.
///
/// A variant other than `base` and `all` that does not apply or build leaves a gap;
/// the others go on.
///
/// # Errors
/// A `base` or `all` that cannot be built.
pub async fn build(
    prepared: &Prepared,
    builder: &Builder,
    on_event: &dyn Fn(Event),
) -> Result<Kernels, CampaignError> {
    let mut kernels = Kernels::default();
    for index in schedule(prepared, builder).await {
        let (name, reference, kernel) = &prepared.kernels[index];
        on_event(Event::BuildStarted {
            kernel: name.clone(),
        });
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |event| {
            // The receiver lives as long as the build; a closed channel means nobody listens.
            let _ = sender.send(event);
        };
        let folders = prepared.module_folders(name);
        let building = async {
            let series = reference.series.as_deref();
            let built = kernel::build(builder, kernel, series, &reference.variant, &tell).await?;
            kernel::with_modules(builder, kernel, &built, &folders, &tell).await
        };
        tokio::pin!(building);
        let result = loop {
            tokio::select! {
                biased;
                Some(event) = receiver.recv() => progress(name, &event, on_event),
                result = &mut building => break result,
            }
        };
        let meta = match result {
            Ok(built) => {
                let meta = KernelMeta {
                    name: name.clone(),
                    image: built.image_sha256.clone(),
                    build_id: built.build_id.clone().unwrap_or_default(),
                    release: built.release.clone(),
                    config: built.config_sha256.clone().unwrap_or_default(),
                    recompiled: built.recompiled,
                    seconds: built.seconds,
                    cached: built.cached,
                    equal_to: kernels
                        .meta
                        .iter()
                        .find(|m| m.image == built.image_sha256)
                        .map(|m| m.name.clone()),
                    unavailable: None,
                };
                kernels.built.insert(name.clone(), built);
                meta
            }
            Err(error) if may_be_missing(&reference.variant, &error) => KernelMeta {
                name: name.clone(),
                unavailable: Some(chain(&error)),
                ..KernelMeta::default()
            },
            Err(source) => {
                return Err(CampaignError::Build {
                    kernel: name.clone(),
                    source,
                });
            }
        };
        on_event(Event::BuildEnded {
            kernel: meta.clone(),
        });
        kernels.meta.push(meta);
    }
    Ok(kernels)
}

/// Kernel by kernel, the order that recompiles least.
async fn schedule(prepared: &Prepared, builder: &Builder) -> Vec<usize> {
    let mut by_kernel: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, (_, reference, _)) in prepared.kernels.iter().enumerate() {
        by_kernel.entry(&reference.kernel).or_default().push(index);
    }
    let mut schedule = Vec::new();
    for indices in by_kernel.into_values() {
        let refs: Vec<_> = indices
            .iter()
            .map(|index| prepared.kernels[*index].1.clone())
            .collect();
        let kernel = &prepared.kernels[indices[0]].2;
        let order = kernel::order(kernel, &refs, &builder.tools).await;
        schedule.extend(order.into_iter().map(|place| indices[place]));
    }
    schedule
}

fn may_be_missing(variant: &Variant, error: &KernelError) -> bool {
    !matches!(variant, Variant::Base | Variant::All)
        && matches!(
            error,
            KernelError::Series { .. } | KernelError::Build { .. } | KernelError::Module { .. }
        )
}

fn progress(name: &str, event: &BuildEvent, on_event: &dyn Fn(Event)) {
    let (step, done, of) = match event {
        BuildEvent::Fetching { what } => (format!("fetch {what}"), 0, None),
        BuildEvent::Unpacking { what } => (format!("unpack {what}"), 0, None),
        BuildEvent::Waiting { .. } => ("wait for another build".to_string(), 0, None),
        BuildEvent::Configuring { .. } => ("configure".to_string(), 0, None),
        BuildEvent::Compiling { done, expected, .. } => ("compile".to_string(), *done, *expected),
        BuildEvent::Linking { .. } => ("link".to_string(), 0, None),
        BuildEvent::Built { .. } => return,
    };
    on_event(Event::BuildProgress {
        kernel: name.to_string(),
        step,
        done,
        of,
    });
}
