//! Kernel options without which the agent cannot speak.

use crate::kernel::KernelConfig;

/// How an option may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// Built in.
    Yes,
    /// Built in or a module: the image brings modules along.
    YesOrModule,
}

const NEEDED: [(&str, As); 8] = [
    ("BLK_DEV_INITRD", As::Yes),
    ("BINFMT_ELF", As::Yes),
    ("PROC_FS", As::Yes),
    ("SYSFS", As::Yes),
    ("PCI", As::Yes),
    ("VIRTIO_PCI", As::YesOrModule),
    ("VIRTIO_CONSOLE", As::YesOrModule),
    ("64BIT", As::Yes),
];

/// Options the agent needs and this kernel lacks, with `CONFIG_`.
pub fn lacking(config: &KernelConfig) -> Vec<String> {
    let missing = NEEDED.iter().filter(|(option, how)| !match how {
        As::Yes => config.is_built_in(option),
        As::YesOrModule => config.is_on(option),
    });
    missing
        .map(|(option, _)| format!("CONFIG_{option}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let all = "CONFIG_64BIT=y\nCONFIG_BLK_DEV_INITRD=y\nCONFIG_BINFMT_ELF=y\n\
            CONFIG_PROC_FS=y\nCONFIG_SYSFS=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=m\n";
        let config = KernelConfig::parse(all);
        assert_eq!(lacking(&config), ["CONFIG_VIRTIO_CONSOLE"]);
        let config = KernelConfig::parse(&format!("{all}CONFIG_VIRTIO_CONSOLE=y\n"));
        assert_eq!(lacking(&config), Vec::<String>::new());
    }
}
