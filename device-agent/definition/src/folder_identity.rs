//! Which folder a path meant when a service was checked: another one under the same path is not the same folder.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The identity of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderIdentity {
    /// Its path without any symbolic link.
    pub real_path: PathBuf,
    /// The number of its device. It can be another after a start of the computer.
    pub device: u64,
    /// The number of the folder on its device.
    pub inode: u64,
    /// The start of the computer at which the device had that number; absent if the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

impl FolderIdentity {
    /// Whether both are the same folder. Devices are compared only where their numbers are of the same start of the
    /// computer: a folder of another device with the same path and number can then only be mounted by an administrator.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_boot = self.boot_id.is_none() || self.boot_id == other.boot_id;
        self.real_path == other.real_path && self.inode == other.inode && (!is_same_boot || self.device == other.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_path_number_or_device_is_another_folder_and_another_start_renumbers_devices() {
        let folder = FolderIdentity { real_path: "/w".into(), device: 1, inode: 2, boot_id: Some("a".to_owned()) };
        assert!(folder.is_same(&folder.clone()));
        assert!(!folder.is_same(&FolderIdentity { real_path: "/v".into(), ..folder.clone() }));
        assert!(!folder.is_same(&FolderIdentity { inode: 3, ..folder.clone() }));
        assert!(!folder.is_same(&FolderIdentity { device: 3, ..folder.clone() }));
        assert!(folder.is_same(&FolderIdentity { device: 3, boot_id: Some("b".to_owned()), ..folder.clone() }));
        let silent = FolderIdentity { boot_id: None, ..folder.clone() };
        assert!(!silent.is_same(&FolderIdentity { device: 3, ..silent.clone() }));
    }
}
