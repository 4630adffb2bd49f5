//! Where a device keeps providers' and servers' keys, as its owner chooses.

deskgate_protocol::words! {
    /// Where keys are kept.
    #[derive(Default)]
    pub enum KeyPlace {
        /// In the private files themselves.
        #[default]
        File = "file",
        /// In the desktop's keyring.
        Keyring = "keyring",
    }
}

impl KeyPlace {
    /// The words for it inside a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "in a file that only you can read",
            Self::Keyring => "in the desktop's keyring",
        }
    }

    /// Whether it is the keyring.
    pub const fn is_keyring(self) -> bool {
        matches!(self, Self::Keyring)
    }
}
