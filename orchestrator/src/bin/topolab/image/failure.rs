//! What to do when there is no image.

use topolab::image::{
    disk::{DebianError, ExistingError, StepError},
    ready::ReadyError,
};

use crate::failure::{Failure, Kind};

/// A failure with what helps against it.
pub fn failure(error: &ReadyError) -> Failure {
    match error {
        ReadyError::Image(inner) => Failure::of(Kind::Request, inner),
        ReadyError::Debian(inner) => debian(inner),
        ReadyError::Existing(inner) => {
            let failure = Failure::of(Kind::Request, inner);
            match inner {
                ExistingError::NoKey { path } => {
                    failure.hint(format_args!("--image existing={},key=FILE", path.display()))
                }
                ExistingError::FileSystem { path, .. } => failure.hint(format_args!(
                    "--image existing={},root=/dev/vda1",
                    path.display()
                )),
                _ => failure,
            }
        }
    }
}

fn debian(error: &DebianError) -> Failure {
    let failure = Failure::of(Kind::Build, error);
    match error {
        DebianError::Step(StepError::Missing { package, .. }) => {
            failure.hint(format_args!("apt-get install {package}"))
        }
        DebianError::Step(StepError::Debootstrap { .. }) => {
            failure.hint("set `mirror:` in the image's file to one that this machine reaches")
        }
        DebianError::Differs { path, .. } => failure.hint(format_args!(
            "topolab image build IMAGE --fresh --record {}",
            path.display()
        )),
        _ => failure,
    }
}
