"""File names that no rule, and no mode but bypassPermissions, approves in advance.

Files with these names run later, or decide what runs: git's own files, shell start-up files, settings of Parley and of
editors, hooks of package managers. Names match in any case and Unicode spelling, and at any depth.
"""

from __future__ import annotations

from itertools import pairwise

from parley.permissions.base import word_set
from parley.permissions.patterns import normalize_name

FOLDERS = word_set(
    ".git .hg .svn .jj .claude .parley .vscode .vscode-server .cursor .idea .fleet .zed .husky .devcontainer "
    ".github .circleci .ssh .gnupg .aws .azure .kube .docker .cargo .yarn .mvn .direnv"
)
FILES = word_set(
    ".gitconfig .gitmodules .gitattributes .git-credentials .hgrc .bashrc .bash_profile .bash_login "
    ".bash_logout .bash_aliases .profile .inputrc .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc "
    ".tcshrc .login .logout .xinitrc .xprofile .xsessionrc .mcp.json .claude.json .envrc .netrc .pgpass "
    ".npmrc .yarnrc .yarnrc.yml .pypirc .pnp.cjs .pnp.loader.mjs .pnpmfile.cjs bunfig.toml .bunfig.toml "
    ".bazelrc .bazeliskrc .ripgreprc .vimrc .exrc .nvimrc .gdbinit .lldbinit .pre-commit-config.yaml "
    ".pre-commit-config.yml lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml .devcontainer.json "
    ".tmux.conf .screenrc .wgetrc .curlrc .gemrc .irbrc .pythonrc .pdbrc sitecustomize.py usercustomize.py "
    "authorized_keys known_hosts crontab id_rsa id_dsa id_ecdsa id_ed25519 gradle-wrapper.properties "
    "maven-wrapper.properties"
)
FOLDER_PAIRS = (
    (".config", "git"),
    (".config", "fish"),
    (".config", "autostart"),
    (".config", "systemd"),
    (".local", "bin"),
)
"""A folder and its subfolder; the name of one alone is not specific enough."""
EXEMPT_PAIRS = ((".claude", "worktrees"),)
"""Folders below protected ones that are not protected."""
KEYS = frozenset([".ssh", ".gnupg", ".netrc", ".git-credentials", ".pgpass", ".aws", ".azure", ".kube"])
"""Files and folders with credentials; reading them needs approval too."""


def is_protected(path: str) -> bool:
    """Whether writing an absolute path needs approval."""
    parts = normalize_name(path).split("/")
    pairs = list(pairwise(parts))
    exempt_at = next((number for number, pair in enumerate(pairs) if pair in EXEMPT_PAIRS), None)
    if exempt_at is not None:
        return is_protected("/".join(parts[:exempt_at] + parts[exempt_at + 2 :]))
    return any(part in FOLDERS or part in FILES for part in parts) or any(pair in FOLDER_PAIRS for pair in pairs)


def holds_keys(path: str) -> bool:
    """Whether reading a path needs approval even in a working directory."""
    return any(part in KEYS for part in normalize_name(path).split("/"))
