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
