//! The names that every service protects: what an editor, a shell or another assistant of the owner runs or obeys when the
//! folder is used next. Version control's own folders are protected beside them, and cannot be taken off.

/// The names, in the order of the alphabet; a folder ends with a slash. An owner takes one off with `!` before it.
pub const PROTECTED_NAMES: [&str; 19] = [
    ".bash_aliases",
    ".bash_login",
    ".bash_profile",
    ".bashrc",
    ".claude/",
    ".cursor/",
    ".devcontainer/",
    ".envrc",
    ".gitconfig",
    ".gitmodules",
    ".idea/",
    ".mcp.json",
    ".profile",
    ".ripgreprc",
    ".vscode/",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];
