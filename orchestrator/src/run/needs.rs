//! Kernel options without which the agent cannot speak, and those without which
//! a disk cannot be the root.

use crate::{image::UserSpace, kernel::KernelConfig};

/// How an option may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// Built in.
    Yes,
    /// Built in or a module: the image brings modules along.
    YesOrModule,
}

const NEEDED: [(&str, As); 7] = [
    ("BINFMT_ELF", As::Yes),
    ("PROC_FS", As::Yes),
    ("SYSFS", As::Yes),
    ("PCI", As::Yes),
    ("VIRTIO_PCI", As::YesOrModule),
    ("VIRTIO_CONSOLE", As::YesOrModule),
    ("64BIT", As::Yes),
];

/// To unpack an initramfs.
const FOR_INITRD: [(&str, As); 1] = [("BLK_DEV_INITRD", As::Yes)];

/// To see what the kernel says on the serial console.
const FOR_CONSOLE: [(&str, As); 3] = [
    ("PRINTK", As::Yes),
    ("SERIAL_8250", As::Yes),
    ("SERIAL_8250_CONSOLE", As::Yes),
];

/// To mount a disk without the help of an initrd, and what systemd asks for
/// before it starts anything (its README, "REQUIREMENTS").
const FOR_DISK: [(&str, As); 13] = [
    ("VIRTIO_BLK", As::Yes),
    ("EXT4_FS", As::Yes),
    ("DEVTMPFS", As::Yes),
    ("TMPFS", As::Yes),
    ("CGROUPS", As::Yes),
    ("INOTIFY_USER", As::Yes),
    ("SIGNALFD", As::Yes),
    ("TIMERFD", As::Yes),
    ("EPOLL", As::Yes),
    ("UNIX", As::Yes),
    ("FHANDLE", As::Yes),
    ("MEMFD_CREATE", As::Yes),
    ("SHMEM", As::Yes),
];

/// To see a folder of the host as the root, with a layer over it.
const FOR_SHARE: [(&str, As); 4] = [
    ("NET_9P_VIRTIO", As::YesOrModule),
    ("9P_FS", As::YesOrModule),
    ("OVERLAY_FS", As::YesOrModule),
    ("TMPFS", As::Yes),
];

/// Options the agent needs and this kernel lacks, with `CONFIG_`.
pub fn lacking(config: &KernelConfig, image: &UserSpace) -> Vec<String> {
    let initrd = image.initrd.iter().flat_map(|_| &FOR_INITRD);
    let mut missing = lacking_of(config, NEEDED.iter().chain(initrd));
    missing.extend(lacking_for_disk(config, image));
    missing
}

/// Options without which nothing is heard of a panic: the run works, and its failures
/// are not explained.
pub fn lacking_for_console(config: &KernelConfig) -> Vec<String> {
    lacking_of(config, FOR_CONSOLE.iter())
}

/// Options without which this image's disk, or the host's folder, cannot be the root of
/// this kernel.
/// Empty for an image without a disk, and for one with an initrd of its own.
pub fn lacking_for_disk(config: &KernelConfig, image: &UserSpace) -> Vec<String> {
    if image.share.is_some() {
        return lacking_of(config, FOR_SHARE.iter());
    }
    if image.disk.is_none() || image.initrd.is_some() {
        return Vec::new();
    }
    lacking_of(config, FOR_DISK.iter())
}

fn lacking_of<'a>(
    config: &KernelConfig,
    needed: impl Iterator<Item = &'a (&'a str, As)>,
) -> Vec<String> {
    let missing = needed.filter(|(option, how)| !match how {
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
    use crate::image::{GuestDisk, Image, Reach, disk::DiskFormat};

    #[test]
    fn what_is_missing_is_named() {
        let all = "CONFIG_64BIT=y\nCONFIG_BLK_DEV_INITRD=y\nCONFIG_BINFMT_ELF=y\n\
            CONFIG_PROC_FS=y\nCONFIG_SYSFS=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=m\n";
        let initramfs = UserSpace::from(Image {
            path: "/i".into(),
            sha256: String::new(),
            bytes: 0,
        });
        let config = KernelConfig::parse(all);
        assert_eq!(lacking(&config, &initramfs), ["CONFIG_VIRTIO_CONSOLE"]);
        let config = KernelConfig::parse(&format!("{all}CONFIG_VIRTIO_CONSOLE=y\n"));
        assert_eq!(lacking(&config, &initramfs), Vec::<String>::new());
    }

    #[test]
    fn a_kernel_without_a_serial_console_is_silent() {
        let all = "CONFIG_PRINTK=y\nCONFIG_SERIAL_8250=y\n";
        let config = KernelConfig::parse(all);
        assert_eq!(lacking_for_console(&config), ["CONFIG_SERIAL_8250_CONSOLE"]);
        let config = KernelConfig::parse(&format!("{all}CONFIG_SERIAL_8250_CONSOLE=y\n"));
        assert_eq!(lacking_for_console(&config), Vec::<String>::new());
    }

    #[test]
    fn a_disk_needs_its_driver_built_in_unless_an_initrd_brings_it() {
        let config = KernelConfig::parse("CONFIG_EXT4_FS=y\nCONFIG_VIRTIO_BLK=m\n");
        let mut image = UserSpace {
            sha256: String::new(),
            initrd: None,
            share: None,
            disk: Some(GuestDisk {
                path: "/d".into(),
                format: DiskFormat::Raw,
            }),
            words: String::new(),
            reach: Reach::Port,
            login: None,
        };
        let missing = lacking_for_disk(&config, &image);
        assert_eq!(missing[0], "CONFIG_VIRTIO_BLK");
        assert!(!missing.contains(&"CONFIG_EXT4_FS".to_string()));
        image.initrd = Some(Image {
            path: "/i".into(),
            sha256: String::new(),
            bytes: 0,
        });
        assert_eq!(lacking_for_disk(&config, &image), Vec::<String>::new());
    }
}
