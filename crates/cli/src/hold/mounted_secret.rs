//! The Secret of a client, mounted as a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The entries of a client's Secret.
pub(crate) type Secret = BTreeMap<String, Vec<u8>>;

/// Reads the entries of one version of the Secret.
pub(crate) fn read(directory: &Path) -> anyhow::Result<Secret> {
    let mut data = BTreeMap::new();
    // Kubernetes replaces the link `..data` when the Secret changes. This resolves it once, so that all entries are of one version.
    let version = fs::canonicalize(directory.join("..data"));
    let directory = version.as_deref().unwrap_or(directory);
    let entries = fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        // Kubernetes keeps the files in a folder that begins with two dots, and links to them.
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'))
            && path.is_file()
        {
            let content = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            data.insert(name.to_owned(), content);
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kubelet replaces all files of a Secret at once, by a link.
    #[test]
    fn a_mounted_secret_is_read_in_one_version() {
        let directory = std::env::temp_dir().join(format!("redlock-secret-{:08x}", rand::random::<u32>()));
        for version in ["..1", "..2"] {
            fs::create_dir_all(directory.join(version)).unwrap();
            fs::write(directory.join(version).join("urls"), version).unwrap();
        }
        std::os::unix::fs::symlink("..1", directory.join("..data")).unwrap();
        // The link of the entry leads to the other version, as after a replacement between two readings of links.
        std::os::unix::fs::symlink("..2/urls", directory.join("urls")).unwrap();
        let data = read(&directory).unwrap();
        assert_eq!(data.into_iter().collect::<Vec<_>>(), [("urls".to_owned(), b"..1".to_vec())]);
        fs::remove_file(directory.join("..data")).unwrap();
        assert_eq!(read(&directory).unwrap()["urls"], b"..2", "a directory that is no mount");
        fs::remove_dir_all(directory).unwrap();
    }
}
