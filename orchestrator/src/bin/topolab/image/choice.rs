//! `--image`: a recipe of the library, or a disk that the command line describes.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use topolab::image::disk::{Base, Existing, Logins, Recipe};

use crate::{failure::Failure, lab};

/// What `--image` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A recipe by name or path.
    Named(String),
    /// A disk made by somebody else.
    Existing(Existing),
}

/// Words that may follow `existing=PATH` after a comma.
const WORDS: [&str; 4] = ["key", "user", "root", "host-key"];

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("existing=") else {
            return match text {
                "" | "existing" => Err("such as `debian`, or `existing=disk.qcow2`".into()),
                name => Ok(Self::Named(name.into())),
            };
        };
        let mut parts = rest.split(',');
        let path = parts.next().unwrap_or_default();
        if path.is_empty() {
            return Err("`existing=` needs the path of a disk".into());
        }
        let mut existing = Existing {
            path: path.into(),
            format: None,
            root: None,
            user: "root".into(),
            key: None,
            host_key: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("key", key)) => existing.key = Some(key.into()),
                Some(("user", user)) => existing.user = user.into(),
                Some(("root", root)) => existing.root = Some(root.into()),
                Some(("host-key", key)) => existing.host_key = Some(key.into()),
                _ => {
                    let known = WORDS.map(|word| format!("{word}=…")).join(", ");
                    return Err(format!("`{part}` is none of {known}"));
                }
            }
        }
        Ok(Self::Existing(existing))
    }
}

impl Choice {
    /// Reads the recipe.
    ///
    /// # Errors
    /// There is none, or everything that is wrong with it.
    pub fn recipe(&self) -> Result<Recipe, Failure> {
        match self {
            Self::Existing(existing) => Ok(Recipe {
                name: "existing".into(),
                base: Base::Existing(existing.clone()),
            }),
            Self::Named(name) => {
                let file = lab::library().image(name).map_err(|error| {
                    let failure = Failure::request(&error);
                    let is_disk = Path::new(name).is_file() && !name.ends_with(".yaml");
                    if is_disk {
                        return failure.hint(format_args!("--image existing={name}"));
                    }
                    failure.hint("topolab image list")
                })?;
                Ok(Recipe::read(&file)?)
            }
        }
    }
}

/// What lets this user into other machines: the SSH agent, else the keys ssh(1)
/// looks for.
pub fn logins() -> Logins {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let names = ["id_ed25519", "id_ecdsa", "id_rsa"];
    Logins {
        agent: std::env::var_os("SSH_AUTH_SOCK")
            .filter(|socket| !socket.is_empty())
            .map(PathBuf::from),
        keys: home
            .map(|home| names.map(|name| home.join(".ssh").join(name)).to_vec())
            .unwrap_or_default(),
        own: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_and_disks_are_told_apart() {
        let read = |text: &str| text.parse::<Choice>();
        assert_eq!(read("debian"), Ok(Choice::Named("debian".into())));
        let Ok(Choice::Existing(disk)) = read("existing=a.qcow2,user=me,key=/k,root=/dev/vda2")
        else {
            panic!("a disk");
        };
        assert_eq!(disk.path, Path::new("a.qcow2"));
        assert_eq!(
            (&*disk.user, disk.key.as_deref(), disk.root.as_deref()),
            ("me", Some(Path::new("/k")), Some("/dev/vda2"))
        );
        assert!(read("existing=").unwrap_err().contains("needs the path"));
        let error = read("existing=a,password=x").unwrap_err();
        assert_eq!(
            error,
            "`password=x` is none of key=…, user=…, root=…, host-key=…"
        );
    }
}
