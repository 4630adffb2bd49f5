//! What a model reads beside text.

deskgate_protocol::words! {
    /// What a model reads. Each includes those before it.
    #[derive(Default, PartialOrd, Ord)]
    pub enum ModelReads {
        /// Text alone.
        #[default]
        Text = "text",
        /// Images too.
        Images = "images",
        /// PDF documents too.
        Pdfs = "pdfs",
    }
}

impl ModelReads {
    /// The same in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Text => "text alone",
            Self::Images => "text and images",
            Self::Pdfs => "text, images and PDFs",
        }
    }
}
